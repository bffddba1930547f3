// The official TypeScript client, first generation.
import assert from "node:assert";
import { createRequire } from "node:module";

const require = createRequire(process.env.MODULES + "/");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const [command, ...args] = JSON.parse(process.env.MCP_SERVER);
const headers = { Authorization: `Bearer ${process.env.MCP_KEY}` };
const transport =
  process.argv[2] === "stdio"
    ? new StdioClientTransport({ command, args, env: process.env })
    : new StreamableHTTPClientTransport(new URL(process.env.MCP_URL), { requestInit: { headers } });

const client = new Client({ name: "tests", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
assert(tools.some((tool) => tool.name === "run_python"));
const code = "import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/a.txt', 'w').write('hi')\n6 * 7";
let result = await client.callTool({ name: "run_python", arguments: { code } });
assert.strictEqual(result.content[0].text, "42");
const read = await client.readResource({ uri: result.content[1].uri });
assert.strictEqual(read.contents[0].text, "hi");
const steps = [];
const slow = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.3)";
const told = { onprogress: (progress) => steps.push(progress.progress) };
await client.callTool({ name: "run_python", arguments: { code: slow } }, undefined, told);
assert(steps.length > 0);
const controller = new AbortController();
setTimeout(() => controller.abort("enough"), 1000);
const sleep = { name: "run_python", arguments: { code: "time.sleep(60)" } };
await assert.rejects(client.callTool(sleep, undefined, { signal: controller.signal }));
result = await client.callTool({ name: "run_python", arguments: { code: "1 + 1" } }, undefined, { timeout: 30000 });
assert.strictEqual(result.content[0].text, "2");
await client.close();
console.log("ok");
