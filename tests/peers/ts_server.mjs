// A peer written with the official TypeScript SDK 1.x: legacy era; stdio, Streamable HTTP with and without sessions, HTTP+SSE.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { completable } from "@modelcontextprotocol/sdk/server/completable.js";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import {
    CreateMessageResultSchema,
    ElicitResultSchema,
    SubscribeRequestSchema,
    UnsubscribeRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
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

const manifest = new URL("node_modules/@modelcontextprotocol/sdk/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(manifest, "utf8"));

function build({ stateless = false } = {}) {
    const capabilities = { logging: {}, resources: { subscribe: !stateless } };
    const options = { capabilities, instructions: "A real server for tests, TypeScript SDK 1.x." };
    const server = new McpServer({ name: "ts-peer", version }, options);
    plainTools(server);
    resources(server);
    prompts(server);
    if (!stateless) conversations(server);
    return server;
}

function plainTools(server) {
    server.registerTool("echo", { title: "Echo", inputSchema: { text: z.string() } }, ({ text: words }) => text(words));
    server.registerTool(
        "slow",
        { title: "Slow", inputSchema: { steps: z.number().default(5), delay: z.number().default(0.2) } },
        async ({ steps, delay }, extra) => {
            for (let step = 1; step <= steps; step++) {
                await pause(delay, extra.signal);
                const progressToken = extra._meta?.progressToken;
                if (progressToken === undefined) continue;
                const params = { progressToken, progress: step, total: steps };
                await extra.sendNotification({ method: "notifications/progress", params });
            }
            return text(`done after ${steps} steps`);
        },
    );
    server.registerTool("cut_short", { title: "Cut short" }, () => text(String(cuts())));
    server.registerTool(
        "log",
        { title: "Log", inputSchema: { text: z.string(), level: z.string().default("warning") } },
        async ({ text: words, level }, extra) => {
            const params = { level, logger: "peer", data: words };
            await extra.sendNotification({ method: "notifications/message", params });
            return text(`logged at ${level}`);
        },
    );
}

function conversations(server) {
    const followed = new Set();
    server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => (followed.add(params.uri), {}));
    server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => (followed.delete(params.uri), {}));
    server.registerTool(
        "touch",
        { title: "Touch", inputSchema: { uri: z.string().default(CLOCK) } },
        async ({ uri }) => {
            if (followed.has(uri)) await server.server.sendResourceUpdated({ uri });
            return text(`touched ${uri}`);
        },
    );
    server.registerTool(
        "ask_model",
        { title: "Ask the model", inputSchema: { question: z.string().default("What is 2 + 2?") } },
        async ({ question }, extra) => {
            const request = { method: "sampling/createMessage", params: samplingOf(question) };
            return saidBy(await extra.sendRequest(request, CreateMessageResultSchema));
        },
    );
    server.registerTool("ask_person", { title: "Ask the person", inputSchema: {} }, async (_, extra) => {
        const request = { method: "elicitation/create", params: { message: QUESTION, requestedSchema: CITY } };
        return told(await extra.sendRequest(request, ElicitResultSchema));
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
    const argsSchema = { text: z.string(), style: completable(z.string().optional(), completeStyle) };
    server.registerPrompt("summarise", { title: "Summarise", argsSchema }, ({ text: words, style }) => ({
        messages: [{ role: "user", content: { type: "text", text: `Summarise in a ${style ?? "short"} way: ${words}` } }],
    }));
}

const sessions = new Map();
const streams = new Map();

async function withSession(request, response) {
    const known = sessions.get(request.headers["mcp-session-id"]);
    if (known) return known.handleRequest(request, response);
    if (request.headers["mcp-session-id"]) return response.writeHead(404).end();
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
    });
    transport.onclose = () => sessions.delete(transport.sessionId);
    await build().connect(transport);
    return transport.handleRequest(request, response);
}

async function withoutSession(request, response) {
    if (request.method !== "POST") return response.writeHead(405).end();
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    const server = build({ stateless: true });
    response.on("close", () => server.close());
    await server.connect(transport);
    return transport.handleRequest(request, response);
}

async function openStream(request, response) {
    if (request.method !== "GET") return response.writeHead(405).end();
    const transport = new SSEServerTransport("/messages", response);
    streams.set(transport.sessionId, transport);
    response.on("close", () => streams.delete(transport.sessionId));
    return build().connect(transport);
}

async function toStream(request, response, url) {
    const transport = streams.get(url.searchParams.get("sessionId"));
    if (!transport) return response.writeHead(404).end();
    return transport.handlePostMessage(request, response);
}

const faces = { "/mcp": withSession, "/stateless/mcp": withoutSession, "/sse": openStream, "/messages": toStream };

serve({
    stdio: () => build().connect(new StdioServerTransport()),
    handle: async (request, response) => {
        const url = new URL(request.url, "http://127.0.0.1");
        const face = faces[url.pathname];
        return face ? face(request, response, url) : response.writeHead(404).end();
    },
});
