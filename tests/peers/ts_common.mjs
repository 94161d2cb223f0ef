// What the two TypeScript peers share: words, forms, and the HTTP server that tells its address.
import { createServer } from "node:http";

export const CLOCK = "peer://clock";
export const QUESTION = "Which city do you mean?";
export const CITY = {
    type: "object",
    properties: {
        city: { type: "string", minLength: 1, description: "A city" },
        visits: { type: "integer", minimum: 0, default: 1, description: "How often you were there" },
    },
    required: ["city"],
};
const STYLES = ["formal", "friendly", "long", "short"];
const NOTES = ["birthdays", "bread", "books"];

export const completeStyle = (typed) => STYLES.filter((value) => value.startsWith(typed ?? ""));
export const completeNote = (typed) => NOTES.filter((value) => value.startsWith(typed ?? ""));
export const text = (words) => ({ content: [{ type: "text", text: words }] });
export const saidBy = (answer) => text(`${answer.model} says: ${answer.content.text}`);
export const told = (answer) =>
    text(answer.action === "accept" ? `accept: ${answer.content.city}, ${answer.content.visits}` : answer.action);
export const samplingOf = (question) => ({
    messages: [{ role: "user", content: { type: "text", text: question } }],
    maxTokens: 50,
});

let cut = 0;

// How many pauses were cancelled in this process, whoever asked for them.
export const cuts = () => cut;

export function pause(seconds, signal) {
    return new Promise((resolve, reject) => {
        const end = () => {
            clearTimeout(timer);
            cut += 1;
            reject(new Error("cancelled"));
        };
        const timer = setTimeout(() => {
            signal.removeEventListener("abort", end);
            resolve();
        }, seconds * 1000);
        signal.addEventListener("abort", end, { once: true });
    });
}

// `node <peer>.mjs stdio` or `node <peer>.mjs all [--port N]`
export function serve({ stdio, handle }) {
    if (process.argv[2] === "stdio") return stdio();
    const at = process.argv.indexOf("--port");
    const server = createServer((request, response) => {
        handle(request, response).catch((problem) => {
            console.error(problem);
            if (!response.headersSent) response.writeHead(500);
            response.end();
        });
    });
    server.listen(at > 0 ? Number(process.argv[at + 1]) : 0, "127.0.0.1", () => {
        console.error(`http://127.0.0.1:${server.address().port}/mcp`);
    });
    process.on("SIGTERM", () => process.exit(0));
}
