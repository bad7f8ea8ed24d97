// Sends requests through an official TypeScript client and prints what the client returns or throws: a JSON array of
// {result}, {error: {code, data}} or {thrown}. Its input is a JSON object: modules, the directory of npm's packages;
// library, the name of the package; era, the revision; steps, the requests in their order; aside, a path to which a
// file moves while another is in its place; and url and token, or command and args, of the server. HANDLE in a request is the handle of the last load.
import { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const { modules, library, era, steps, aside, url, token, command, args } = JSON.parse(readFileSync(0, 'utf8'));
const require = createRequire(join(modules, 'crossing.mjs'));
const options = { capabilities: { elicitation: {} } };

let client, transport;
const headers = { Authorization: `Bearer ${token}` };
if (library === 'sdk') {
  const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
  const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const { ElicitRequestSchema } = require('@modelcontextprotocol/sdk/types.js');
  client = new Client({ name: 'e2e', version: '1' }, options);
  client.setRequestHandler(ElicitRequestSchema, answer);
  transport = url ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
    : new StdioClientTransport({ command, args });
} else {
  const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
  const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');
  const mode = era === '2025-11-25' ? 'legacy' : { pin: era };
  client = new Client({ name: 'e2e', version: '1' }, { ...options, versionNegotiation: { mode } });
  client.setRequestHandler('elicitation/create', answer);
  transport = url ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
    : new StdioClientTransport({ command, args });
}
await client.connect(transport);

// answer is the user's: a run with the argument yes is wanted, no other.
async function answer({ params }) {
  const decision = params.message.includes('"yes"') ? 'Run it once' : 'Do not run it';
  return { action: 'accept', content: { decision } };
}

const methods = {
  'tools/list': (params) => client.listTools(params),
  'tools/call': (params) => client.callTool(params),
  'resources/list': (params) => client.listResources(params),
  'resources/templates/list': (params) => client.listResourceTemplates(params),
  'resources/read': (params) => client.readResource(params),
  'prompts/list': (params) => client.listPrompts(params),
  'prompts/get': (params) => client.getPrompt(params),
  'completion/complete': (params) => client.complete(params),
};

let handle = '';
const replies = [];
for (const { method, params, edit, with: other } of steps) {
  if (params.arguments?.activation === 'HANDLE') {
    if (handle) params.arguments.activation = handle;
    else delete params.arguments.activation;
  }
  if (params.uri) params.uri = params.uri.replace('?activation=HANDLE', handle ? `?activation=${handle}` : '');
  if (edit) {
    renameSync(edit, aside);
    if (other === 'link') symlinkSync(aside, edit);
    else if (other === 'directory') mkdirSync(edit);
    else writeFileSync(edit, '---\nname: [\n---\n');
  }
  try {
    const result = await methods[method](params);
    handle = result._meta?.['skillsd/result']?.activation ?? handle;
    replies.push({ result });
  } catch (err) {
    const { code, data } = err;
    replies.push(Number.isInteger(code) ? { error: { code, data } } : { thrown: String(err) });
  }
  if (edit) {
    rmSync(edit, { recursive: true });
    renameSync(aside, edit);
  }
}
await client.close();
console.log(JSON.stringify(replies));
