// Makes the calls of one recorded run once more: through the adapter, the official client and skillsd, and
// without cf-harness, for which a few functions stand in. Reads a Request from stdin and prints what the
// run left.
type Json = Record<string, any>;

interface Request {
  /** The directory of the adapter. */
  adapter: string;
  /** Where skillsd is: a Place of the adapter. */
  place: Json;
  runId: string;
  mode: string;
  promptSlot: Json;
  denials: "observation" | "output";
  preload: string[];
  /** The lease of a browser, for children. */
  lease?: Json;
  turns: {
    /** A child that makes the calls, its profile, and the skills that the harness gave it. */
    child?: { runId: string; profile?: string; skills: string[] };
    /** Files that change before the turn. */
    files: Record<string, string>;
    calls: { id: string; function: { name: string; arguments: string } }[];
  }[];
}

const request: Request = JSON.parse(await new Response(Deno.stdin.readable).text());
const { attach, install } = await import(`${request.adapter}/adapter.ts`);
const { plain } = await import(`${request.adapter}/records.ts`);
const { Skillsd } = await import(`${request.adapter}/skillsd.ts`);
const { runId, turns } = request;

const left: Json = {
  outputs: [],
  reads: [],
  executions: [],
  denials: [],
  events: [],
  invocations: [],
};
const subagentRuns = turns.flatMap(({ child }) =>
  child === undefined ? [] : [{ childRunId: child.runId, manifest: { profile: child.profile } }]
);
const engine = {
  getRunState: () => ({ runId, subagentRuns }),
  persistSkillRegistry: (registry: Json) => left.registry = registry,
  persistSkillActivations: (activations: Json) => left.activations = activations,
  recordPolicyEvent: (event: Json) =>
    left.denials.push({ type: "cf-harness.policy-event", ...event, at: new Date().toISOString() }),
};
const scripted = {
  providerId: "scripted",
  complete: () => Promise.resolve({ assistant: { role: "assistant", toolCalls: turns[0].calls } }),
};

const server = await Skillsd.connect(request.place);
const table = { BUILTIN_TOOLS: [], BUILTIN_TOOL_REGISTRY: new Map() };
await install(server, table);
const { model, contextMessages } = await attach({
  server,
  engine,
  model: scripted,
  promptSlot: request.promptSlot,
  preload: request.preload,
  profiles: ["browser"],
  denials: request.denials,
  extensions: false,
});
left.contextMessages = contextMessages;

// What the calls of the model leave in skillsd's own record.
const { call } = server;
server.call = async (...args: unknown[]) => {
  const answer = await call.apply(server, args);
  const { cfcInvocationContext, policyEvents } = answer.records ?? {};
  left.events.push(...(policyEvents ?? []));
  if (cfcInvocationContext !== undefined) {
    left.invocations.push(cfcInvocationContext);
  }
  return answer;
};

const outputs = new Map<string, number>();
const numbered = (id: string) => (tool: string) => {
  outputs.set(id, (outputs.get(id) ?? 0) + 1);
  return `${id}:${tool}:${outputs.get(id)}`;
};
const context = {
  runId,
  cfcEnforcementMode: request.mode,
  skillRegistry: left.registry,
  skillActivations: left.activations,
  nextOutputId: numbered(runId),
  now: () => new Date().toISOString(),
  recordSkillResourceRead: (row: Json) => left.reads.push(row),
  recordSkillScriptExecution: (row: Json) => left.executions.push(row),
  createCfcInvocationContext: () => {},
};
while (turns.length > 0) {
  for (const [path, text] of Object.entries(turns[0].files ?? {})) {
    await Deno.writeTextFile(path, text);
  }
  const { child } = turns[0];
  const { assistant } = await model.complete({ runId: child?.runId ?? runId });
  const activations = child?.skills.map((name) => ({ name }));
  const caller = child === undefined ? context : {
    ...context,
    runId: child.runId,
    nextOutputId: numbered(child.runId),
    skillActivations: { activations },
    browserAccess: request.lease,
  };
  for (const { function: made } of assistant.toolCalls) {
    const tool = table.BUILTIN_TOOL_REGISTRY.get(made.name);
    left.outputs.push(await tool.invoke(caller, JSON.parse(made.arguments)));
  }
  if (child?.profile !== undefined) {
    // What is active in skillsd's own session of the child. The adapter has loaded what the profile activated
    // once more: a second row of the same skill has the handle that the load gave out.
    const meta = { "skillsd/session": child.runId, "skillsd/parent-session": runId };
    const narrowed = { ...meta, "skillsd/profile": child.profile };
    const active = plain(await server.file("skill-activations.json", narrowed));
    const first = (row: Json, i: number) =>
      active.activations.findIndex((each: Json) => each.name === row.name) === i;
    left.activations = { ...active, activations: active.activations.filter(first) };
  }
  turns.shift();
}
await server.close();
console.log(JSON.stringify(left));
