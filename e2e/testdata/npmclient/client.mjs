// Uses a server through @modelcontextprotocol/client as a host does, and prints what it was told:
// one JSON object. Its argument is a JSON object: modules, the directory of npm's packages; mode,
// how the client negotiates; root, the directory of the skills; and url, or command and args, of the
// server.
import { mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const { modules, mode, root, url, command, args } = JSON.parse(process.argv[2]);
const require = createRequire(join(modules, 'client.mjs'));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');
const { SkillsClient } = require('@modelcontextprotocol/client/ext/skills');

// changed is resolved with the tools once their list has changed to tell of a skill that came later.
const { promise: changed, resolve: sawChange, reject: missedChange } = Promise.withResolvers();
const onChanged = (err, tools) => {
  if (err) missedChange(err);
  else if (tools.some((tool) => tool.description.includes('late: Came later.'))) sawChange(true);
};
const client = new Client(
  { name: 'e2e', version: '1' },
  { versionNegotiation: { mode }, listChanged: { tools: { onChanged } } },
);
await client.connect(url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport({ command, args }));

// call returns what a tool says, and whether it is an error.
const call = async (name, args) => {
  const { content, isError = false, _meta } = await client.callTool({ name, arguments: args });
  return { text: content.map((block) => block.text).join(''), isError, handle: _meta?.['skillsd/result']?.activation };
};

const told = { version: client.getNegotiatedProtocolVersion(), instructions: client.getInstructions() };
told.tools = Object.fromEntries((await client.listTools()).tools.map((tool) => [tool.name, tool.description]));

told.load = await call('load_skill', { name: 'demo' });
const activation = told.load.handle;
told.unknown = await call('load_skill', { name: 'demoo' });
told.read = await call('read_skill_resource', { skill: 'demo', path: 'references/notes.md', activation });
told.escape = await call('read_skill_resource', { skill: 'demo', path: '../../etc/passwd', activation });
told.run = await call('run_skill_script', { skill: 'demo', path: 'scripts/other.sh', activation });

// The client checks each entry, and each file against its digest and size.
const skills = new SkillsClient(client);
const { skills: entries } = await skills.list();
told.skills = {};
for (const entry of entries) {
  const files = {};
  for (const { uri } of entry.resources) {
    const file = await skills.read(entry, uri);
    files[uri] = file.verified;
  }
  told.skills[(await skills.get(entry.uri)).skill.uri] = files;
}
told.directory = (await skills.readDirectory('skill://demo')).resources.map(({ uri }) => uri);

told.resources = (await client.listResources()).resources.map(({ uri }) => uri);
told.prompts = (await client.listPrompts()).prompts.map(({ name }) => name);
const prompt = await client.getPrompt({ name: 'demo', arguments: { request: 'hello' } });
told.prompt = prompt.messages.map(({ content }) => content.text ?? '').join('');
told.missing = await client.readResource({ uri: 'skill://demo/none.md' }).then(() => 0, (err) => err.code);

mkdirSync(join(root, 'late'));
writeFileSync(join(root, 'late', 'SKILL.md'), '---\nname: late\ndescription: Came later.\n---\nBody.\n');
setTimeout(() => missedChange(new Error('no word of the change')), 30_000).unref();
told.late = await changed;

await client.close();
console.log(JSON.stringify(told));
