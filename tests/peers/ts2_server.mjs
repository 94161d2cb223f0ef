// A peer written with the official TypeScript SDK 2.x: both eras over stdio, the modern one and a stateless legacy one over HTTP.
import { readFileSync } from "node:fs";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer, ResourceTemplate, completable, createMcpHandler, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";
import {
    CITY,
    CLOCK,
    QUESTION,
    completeNote,
    completeStyle,
    cuts,
    pause,
    saidBy,
    samplingOf,
    serve,
    text,
    told,
} from "./ts_common.mjs";

const manifest = new URL("node_modules/@modelcontextprotocol/server/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(manifest, "utf8"));

// `announce(uri)` tells the clients that listen; a legacy server without sessions has nobody to ask or to tell.
function build({ era, announce, sessions }) {
    const talks = era === "modern" || sessions;
    const capabilities = { logging: {}, resources: { subscribe: talks, listChanged: false } };
    const options = { capabilities, instructions: "A real server for tests, TypeScript SDK 2.x." };
    const server = new McpServer({ name: "ts2-peer", version }, options);
    plainTools(server);
    resources(server);
    prompts(server);
    if (talks) conversations(server, era, announce);
    return server;
}

function plainTools(server) {
    server.registerTool("echo", { title: "Echo", inputSchema: z.object({ text: z.string() }) }, ({ text: words }) =>
        text(words),
    );
    const steps = z.object({ steps: z.number().default(5), delay: z.number().default(0.2) });
    server.registerTool("slow", { title: "Slow", inputSchema: steps }, async ({ steps, delay }, ctx) => {
        for (let step = 1; step <= steps; step++) {
            await pause(delay, ctx.mcpReq.signal);
            const progressToken = ctx.mcpReq._meta?.progressToken;
            if (progressToken === undefined) continue;
            const params = { progressToken, progress: step, total: steps };
            await ctx.mcpReq.notify({ method: "notifications/progress", params });
        }
        return text(`done after ${steps} steps`);
    });
    server.registerTool("cut_short", { title: "Cut short" }, () => text(String(cuts())));
    const logged = z.object({ text: z.string(), level: z.string().default("warning") });
    server.registerTool("log", { title: "Log", inputSchema: logged }, async ({ text: words, level }, ctx) => {
        await ctx.mcpReq.log(level, words, "peer");
        return text(`logged at ${level}`);
    });
}

function conversations(server, era, announce) {
    const followed = new Set();
    if (era === "legacy") {
        server.server.setRequestHandler("resources/subscribe", ({ params }) => (followed.add(params.uri), {}));
        server.server.setRequestHandler("resources/unsubscribe", ({ params }) => (followed.delete(params.uri), {}));
    }
    const touched = z.object({ uri: z.string().default(CLOCK) });
    server.registerTool("touch", { title: "Touch", inputSchema: touched }, async ({ uri }) => {
        if (era === "modern") await announce(server, uri);
        else if (followed.has(uri)) await server.server.sendResourceUpdated({ uri });
        return text(`touched ${uri}`);
    });
    const asked = z.object({ question: z.string().default("What is 2 + 2?") });
    server.registerTool("ask_model", { title: "Ask the model", inputSchema: asked }, async ({ question }, ctx) => {
        const params = samplingOf(question);
        if (era === "legacy") return saidBy(await ctx.mcpReq.requestSampling(params));
        const answer = ctx.mcpReq.inputResponses?.model;
        return answer ? saidBy(answer) : inputRequired({ inputRequests: { model: inputRequired.createMessage(params) } });
    });
    server.registerTool("ask_person", { title: "Ask the person", inputSchema: z.object({}) }, async (_, ctx) => {
        const params = { message: QUESTION, requestedSchema: CITY };
        if (era === "legacy") return told(await ctx.mcpReq.elicitInput(params));
        const answer = ctx.mcpReq.inputResponses?.city;
        return answer ? told(answer) : inputRequired({ inputRequests: { city: inputRequired.elicit(params) } });
    });
}

function resources(server) {
    server.registerResource("clock", CLOCK, { title: "Clock", mimeType: "text/plain" }, (uri) => ({
        contents: [{ uri: uri.href, mimeType: "text/plain", text: String(Date.now()) }],
    }));
    const template = new ResourceTemplate("peer://notes/{name}", { list: undefined, complete: { name: completeNote } });
    server.registerResource("note", template, { title: "Note", mimeType: "text/plain" }, (uri, { name }) => ({
        contents: [{ uri: uri.href, mimeType: "text/plain", text: `the note called ${name}` }],
    }));
}

function prompts(server) {
    const argsSchema = z.object({ text: z.string(), style: completable(z.string(), completeStyle).optional() });
    server.registerPrompt("summarise", { title: "Summarise", argsSchema }, ({ text: words, style }) => ({
        messages: [{ role: "user", content: { type: "text", text: `Summarise in a ${style ?? "short"} way: ${words}` } }],
    }));
}

serve({
    stdio: () =>
        serveStdio(({ era }) =>
            build({ era, sessions: true, announce: (server, uri) => server.server.sendResourceUpdated({ uri }) }),
        ),
    handle: (() => {
        const handler = createMcpHandler(({ era }) =>
            build({ era, sessions: false, announce: (_, uri) => handler.notify.resourceUpdated(uri) }),
        );
        const answer = toNodeHandler(handler);
        return async (request, response) =>
            request.url === "/mcp" ? answer(request, response) : response.writeHead(404).end();
    })(),
});
