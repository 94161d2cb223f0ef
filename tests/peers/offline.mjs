// node --import offline.mjs <server>: the server reaches nothing but this machine's own sockets, so that a test with
// dummy keys never speaks to the real service.
import { Socket } from "node:net";

const connect = Socket.prototype.connect;
const LOCAL = new Set(["localhost", "127.0.0.1", "::1"]);

Socket.prototype.connect = function (...given) {
    const options = Array.isArray(given[0]) ? given[0][0] : given[0];
    const local = options?.path || LOCAL.has(options?.host) || typeof options !== "object";
    if (local) return connect.apply(this, given);
    process.nextTick(() => this.destroy(new Error("offline: this server may reach nothing outside of the machine")));
    return this;
};
