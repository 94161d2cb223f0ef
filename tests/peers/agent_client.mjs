// An agent with a client of the official TypeScript SDK, or mcp-remote: does one thing of each kind at an endpoint for
// agents and prints what it got as JSON, as agent_client.py does.
//
// node agent_client.mjs FACE URL ASKING_URL TOKEN [PREFIX ASKING_PREFIX], with FACE one of ts1, ts2-legacy, ts2-auto,
// ts2-2026-07-28, mcp-remote (the SDK 1.x behind it, over stdio). The prefixes are those of a bundle.
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [FACE, URL_, ASKING, TOKEN, PREFIX = "", ASKING_PREFIX = ""] = process.argv.slice(2);
const ANSWER = { name: "Ann", count: 3 };
const INFO = { name: "typescript", version: "1" };
const REMOTE = join(dirname(fileURLToPath(import.meta.url)), "node_modules", "mcp-remote", "dist", "proxy.js");
const requestInit = { headers: { Authorization: `Bearer ${TOKEN}` } };
const capabilities = { elicitation: { form: {} } };
const accept = async () => ({ action: "accept", content: ANSWER });

async function sdk1(url) {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    const client = new Client(INFO, { capabilities });
    client.setRequestHandler(ElicitRequestSchema, accept);
    if (FACE === "mcp-remote") {
        const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
        // Its arguments are not split at blanks, so the header stands in a variable, as its documents say.
        const args = [REMOTE, url, "--allow-http", "--transport", "http-only", "--header", "Authorization:${BEARER}"];
        const env = { ...process.env, BEARER: `Bearer ${TOKEN}` };
        await client.connect(new StdioClientTransport({ command: process.execPath, args, env, stderr: "inherit" }));
    } else {
        const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
        await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
    }
    return { client, call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options) };
}

async function sdk2(url) {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const wanted = FACE.slice("ts2-".length);
    const mode = wanted === "legacy" || wanted === "auto" ? wanted : { pin: wanted };
    const client = new Client(INFO, { capabilities, versionNegotiation: { mode } });
    client.setRequestHandler("elicitation/create", accept);
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
    return { client, call: (name, args, options) => client.callTool({ name, arguments: args }, options) };
}

const textOf = (result) => result.content.map((block) => block.text ?? "").join("");

async function everything({ client, call }) {
    const found = { progress: [] };
    found.tools = (await client.listTools()).tools.map((tool) => tool.name);
    found.echo = textOf(await call(`${PREFIX}echo`, { text: "from an agent" }));
    found.structured = (await call(`${PREFIX}add`, { a: 20, b: 22 })).structuredContent;
    await call(`${PREFIX}slow`, { steps: 3, delay: 0.05 }, { onprogress: ({ progress }) => found.progress.push(progress) });
    const failed = await call(`${PREFIX}fail`, { message: "as asked" });
    found.failed = [failed.isError === true, textOf(failed).includes("as asked")];
    try {
        found.unknown = await call(`${PREFIX}nope`, {});
    } catch (error) {
        found.unknown = String(error);
    }
    const { uri } = (await client.listResources()).resources[0];
    found.read = (await client.readResource({ uri })).contents.map((one) => one.uri === uri);
    found.templates = (await client.listResourceTemplates()).resourceTemplates.length;
    const { prompts } = await client.listPrompts();
    const prompt = prompts.find((one) => one.arguments?.length && one.name.startsWith(PREFIX));
    const given = Object.fromEntries(prompt.arguments.map((one) => [one.name, "a"]));
    found.prompt = (await client.getPrompt({ name: prompt.name, arguments: given })).messages.length;
    const ref = { type: "ref/prompt", name: prompt.name };
    const argument = { name: prompt.arguments[0].name, value: "" };
    found.completed = Array.isArray((await client.complete({ ref, argument })).completion.values);
    return found;
}

const open = FACE.startsWith("ts2-") ? sdk2 : sdk1;
let opened = await open(URL_);
const found = await everything(opened);
await opened.client.close();
if (ASKING) {
    opened = await open(ASKING);
    found.asked = textOf(await opened.call(`${ASKING_PREFIX}pizza`, {}));
    await opened.client.close();
}
console.log("FOUND", JSON.stringify(found));
process.exit(0);
