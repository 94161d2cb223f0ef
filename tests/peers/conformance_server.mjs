// A peer with every tool, resource and prompt that the official conformance suite calls by name, on the TypeScript SDK 2.x:
// both eras over stdio, the legacy one with sessions over HTTP. Tools that ask use input_required; for a legacy client the
// SDK makes requests of it.
import { createHmac, randomUUID } from "node:crypto";
import { NodeStreamableHTTPServerTransport } from "@modelcontextprotocol/node";
import {
    McpServer,
    ProtocolError,
    ResourceTemplate,
    completable,
    fromJsonSchema,
    inputRequired,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";
import { pause, serve, text } from "./ts_common.mjs";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
const KEY = "a key of this process would do";
const INVALID_PARAMS = -32602;
const NAME = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const OK = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
const COLOR = { type: "object", properties: { color: { type: "string" } }, required: ["color"] };
const CONTEXT = { type: "object", properties: { context: { type: "string" } }, required: ["context"] };
const RESPONSE = { type: "object", properties: { response: { type: "string" } }, required: ["response"] };
const DEFAULTS = {
    type: "object",
    properties: {
        name: { type: "string", default: "John Doe" },
        age: { type: "integer", default: 30 },
        score: { type: "number", default: 95.5 },
        status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
        verified: { type: "boolean", default: true },
    },
    required: [],
};
const TITLED = ["First", "Second", "Third"].map((title, n) => ({ const: `value${n + 1}`, title: `${title} option` }));
const ENUMS = {
    type: "object",
    properties: {
        untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
        titledSingle: { type: "string", oneOf: TITLED },
        legacyEnum: { type: "string", enum: ["opt1", "opt2", "opt3"], enumNames: ["One", "Two", "Three"] },
        untitledMulti: { type: "array", items: { type: "string", enum: ["option1", "option2", "option3"] } },
        titledMulti: { type: "array", items: { anyOf: TITLED } },
    },
    required: [],
};

const sealed = (value) => `${value}.${createHmac("sha256", KEY).update(value).digest("hex")}`;

// `requestState` as we made it; any other is refused before a handler runs.
function verify(state) {
    const value = state.slice(0, state.lastIndexOf("."));
    if (sealed(value) !== state) throw new Error("altered");
    return value;
}

const elicit = (message, requestedSchema) => inputRequired.elicit({ message, requestedSchema });
const sample = (words, maxTokens = 100) =>
    inputRequired.createMessage({ messages: [{ role: "user", content: { type: "text", text: words } }], maxTokens });
const ask = (inputRequests, state) =>
    inputRequired(state ? { inputRequests, requestState: sealed(state) } : { inputRequests });
const answered = (ctx, key) => {
    const answer = ctx.mcpReq.inputResponses?.[key];
    return answer !== null && typeof answer === "object" ? answer : undefined;
};

function build() {
    const server = new McpServer(
        { name: "conformance-peer", version: "1.0.0" },
        {
            capabilities: {
                tools: { listChanged: true },
                resources: { subscribe: true, listChanged: true },
                prompts: { listChanged: true },
                logging: {},
                completions: {},
            },
            requestState: { verify },
        },
    );
    const tool = (name, work, inputSchema) =>
        server.registerTool(name, { description: `What ${name} is for says the suite.`, inputSchema }, work);
    const plain = (name, work) => tool(name, (_, ctx) => work(ctx), z.object({}));
    contents(plain);
    during(plain);
    legacyQuestions(tool, plain);
    rounds(plain);
    changes(server, plain);
    schemas(server, tool);
    resources(server);
    prompts(server);
    return server;
}

function contents(plain) {
    const image = { type: "image", data: PNG, mimeType: "image/png" };
    const resource = (uri, mimeType, words) => ({ type: "resource", resource: { uri, mimeType, text: words } });
    plain("test_simple_text", () => text("This is a simple text response for testing."));
    plain("test_image_content", () => ({ content: [image] }));
    plain("test_audio_content", () => ({ content: [{ type: "audio", data: WAV, mimeType: "audio/wav" }] }));
    plain("test_embedded_resource", () => ({
        content: [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")],
    }));
    plain("test_multiple_content_types", () => ({
        content: [
            { type: "text", text: "Multiple content types test:" },
            image,
            resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ],
    }));
    plain("test_error_handling", () => {
        throw new Error("This tool intentionally returns an error for testing");
    });
}

function during(plain) {
    plain("test_tool_with_logging", async (ctx) => {
        for (const words of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
            await ctx.mcpReq.log("info", words, "peer");
            await pause(0.05, ctx.mcpReq.signal);
        }
        return text("logged");
    });
    plain("test_logging_tool", async (ctx) => {
        await ctx.mcpReq.log("info", "a line that only some want", "peer");
        return text("logged");
    });
    plain("test_tool_with_progress", async (ctx) => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (const progress of [0, 50, 100]) {
            if (progressToken !== undefined) {
                const params = { progressToken, progress, total: 100 };
                await ctx.mcpReq.notify({ method: "notifications/progress", params });
            }
            await pause(0.05, ctx.mcpReq.signal);
        }
        return text("done");
    });
}

function legacyQuestions(tool, plain) {
    const asks = (message, schema) => async (ctx) => {
        const answer = answered(ctx, "answer");
        return answer ? text(JSON.stringify(answer)) : ask({ answer: elicit(message, schema) });
    };
    tool(
        "test_sampling",
        ({ prompt }, ctx) => {
            const answer = answered(ctx, "model");
            return answer ? text(`LLM response: ${answer.content.text}`) : ask({ model: sample(prompt) });
        },
        z.object({ prompt: z.string() }),
    );
    tool("test_elicitation", ({ message }, ctx) => asks(message, RESPONSE)(ctx), z.object({ message: z.string() }));
    plain("test_elicitation_sep1034_defaults", asks("Please review the form", DEFAULTS));
    plain("test_elicitation_sep1330_enums", asks("Please select options", ENUMS));
    plain("test_streaming_elicitation", asks("Please respond", RESPONSE));
    // Of a modern client that does not declare sampling, the SDK refuses the request: -32021.
    plain("test_missing_capability", (ctx) =>
        answered(ctx, "model") ? text("sampling is there") : ask({ model: sample("Hello") }),
    );
}

function rounds(plain) {
    plain("test_input_required_result_elicitation", (ctx) => {
        const name = answered(ctx, "user_name")?.content?.name;
        return name === undefined ? ask({ user_name: elicit("What is your name?", NAME) }) : text(`Hello, ${name}!`);
    });
    plain("test_input_required_result_sampling", (ctx) => {
        const answer = answered(ctx, "capital_question");
        if (!answer) return ask({ capital_question: sample("What is the capital of France?") });
        return text(answer.content.text);
    });
    plain("test_input_required_result_list_roots", (ctx) => {
        const answer = answered(ctx, "client_roots");
        if (!answer) return ask({ client_roots: inputRequired.listRoots() });
        return text(answer.roots.map((root) => root.uri).join(" "));
    });
    for (const name of ["request_state", "tampered_state"]) {
        plain(`test_input_required_result_${name}`, (ctx) => {
            if (!answered(ctx, "confirm")) return ask({ confirm: elicit("Please confirm", OK) }, "waiting");
            if (ctx.mcpReq.requestState() !== "waiting") throw new ProtocolError(INVALID_PARAMS, "The state is missing");
            return text("state-ok");
        });
    }
    plain("test_input_required_result_multiple_inputs", (ctx) => {
        const keys = ["user_name", "greeting", "client_roots"];
        if (keys.every((key) => answered(ctx, key)) && ctx.mcpReq.requestState() === "several") return text("all there");
        const user_name = elicit("What is your name?", NAME);
        const inputs = { user_name, greeting: sample("Generate a greeting", 50), client_roots: inputRequired.listRoots() };
        return ask(inputs, "several");
    });
    plain("test_input_required_result_multi_round", (ctx) => {
        const state = ctx.mcpReq.requestState();
        if (state === "round 1" && answered(ctx, "step1")) {
            return ask({ step2: elicit("Step 2: What is your favorite color?", COLOR) }, "round 2");
        }
        if (state === "round 2" && answered(ctx, "step2")) return text("both steps done");
        return ask({ step1: elicit("Step 1: What is your name?", NAME) }, "round 1");
    });
    plain("test_input_required_result_capabilities", (ctx) => {
        const declared = ctx.mcpReq.envelope?.["io.modelcontextprotocol/clientCapabilities"] ?? { sampling: {} };
        if (answered(ctx, "model") || answered(ctx, "person")) return text("answered");
        const inputs = declared.sampling ? { model: sample("Hello") } : {};
        if (declared.elicitation) inputs.person = elicit("Hello", NAME);
        return ask(inputs, "capabilities");
    });
}

// Announced without a difference: a client must hear of it all the same.
function changes(server, plain) {
    plain("test_trigger_tool_change", () => {
        server.sendToolListChanged();
        return text("announced");
    });
    plain("test_trigger_prompt_change", () => {
        server.sendPromptListChanged();
        return text("announced");
    });
}

function schemas(server, tool) {
    const address = { $anchor: "addressDef", type: "object", properties: { city: { type: "string" } } };
    tool(
        "json_schema_2020_12_tool",
        (given) => text(JSON.stringify(given)),
        fromJsonSchema({
            $schema: "https://json-schema.org/draft/2020-12/schema",
            type: "object",
            $defs: { address },
            properties: {
                name: { type: "string" },
                address: { $ref: "#/$defs/address" },
                contactMethod: { type: "string", enum: ["phone", "email"] },
                phone: { type: "string" },
                email: { type: "string" },
            },
            allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }, { required: ["name"] }] }],
            if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
            then: { required: ["phone"] },
            else: { properties: { name: { type: "string" } } },
            additionalProperties: false,
        }),
    );
}

function resources(server) {
    const add = (name, uri, mimeType, content) =>
        server.registerResource(name, uri, { description: name, mimeType }, (asked) => ({
            contents: [{ uri: asked.href, mimeType, ...content }],
        }));
    add("static-text", "test://static-text", "text/plain", { text: "This is the content of the static text resource." });
    add("static-binary", "test://static-binary", "image/png", { blob: PNG });
    add("watched-resource", "test://watched-resource", "text/plain", { text: "Watched resource content" });
    const template = new ResourceTemplate("test://template/{id}/data", { list: undefined });
    server.registerResource("template", template, { mimeType: "application/json" }, (uri, { id }) => ({
        contents: [{ uri: uri.href, mimeType: "application/json", text: JSON.stringify({ id, templateTest: true }) }],
    }));
    server.server.setRequestHandler("resources/subscribe", () => ({}));
    server.server.setRequestHandler("resources/unsubscribe", () => ({}));
}

function prompts(server) {
    const says = (words) => ({ role: "user", content: { type: "text", text: words } });
    const add = (name, work, argsSchema) =>
        server.registerPrompt(name, { description: `What ${name} is for says the suite.`, argsSchema }, work);
    add("test_simple_prompt", () => ({ messages: [says("This is a simple prompt for testing.")] }));
    const completed = completable(z.string(), (typed) => ["paris", "park", "party"].filter((one) => one.startsWith(typed)));
    add(
        "test_prompt_with_arguments",
        ({ arg1, arg2 }) => ({ messages: [says(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)] }),
        z.object({ arg1: completed, arg2: z.string() }),
    );
    add(
        "test_prompt_with_embedded_resource",
        ({ resourceUri }) => {
            const resource = { uri: resourceUri, mimeType: "text/plain", text: "Embedded resource content for testing." };
            const embedded = { role: "user", content: { type: "resource", resource } };
            return { messages: [embedded, says("Please process the embedded resource above.")] };
        },
        z.object({ resourceUri: z.string() }),
    );
    const image = { role: "user", content: { type: "image", data: PNG, mimeType: "image/png" } };
    add("test_prompt_with_image", () => ({ messages: [image, says("Please analyze the image above.")] }));
    add("test_input_required_result_prompt", (ctx) => {
        const context = answered(ctx, "user_context")?.content?.context;
        if (context === undefined) return ask({ user_context: elicit("What context should the prompt use?", CONTEXT) });
        return { messages: [says(`Use this context: ${context}`)] };
    });
}

const sessions = new Map();

// Over HTTP a question comes on the stream of its call, so it is known which one of several that is.
async function withSession(request, response) {
    const identity = request.headers["mcp-session-id"];
    if (identity && !sessions.has(identity)) return response.writeHead(404).end();
    if (identity) return sessions.get(identity).handleRequest(request, response);
    const transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
    });
    transport.onclose = () => sessions.delete(transport.sessionId);
    await build().connect(transport);
    return transport.handleRequest(request, response);
}

serve({
    stdio: () => serveStdio(build),
    handle: (request, response) =>
        new URL(request.url, "http://localhost").pathname === "/mcp"
            ? withSession(request, response)
            : Promise.resolve(response.writeHead(404).end()),
});
