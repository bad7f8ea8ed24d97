// The skill tools of cf-harness, answered by skillsd.
//
// install() replaces two tools in cf-harness's table and adds load_skill. attach() gives one run its
// server, its registry of skills and the skills that it starts with. A run that was not attached keeps
// cf-harness's own tools.
import {
  contextMessage,
  failed,
  plain,
  readType,
  refused,
  registered,
  rowOf,
  runType,
  summary,
} from "./records.ts";
import type { Answer, Json, Skillsd } from "./skillsd.ts";

/** The part of cf-harness's engine that is used here. */
export interface Engine {
  // deno-lint-ignore no-explicit-any
  getRunState(): any;
  // deno-lint-ignore no-explicit-any
  persistSkillRegistry(registry: any): unknown;
  // deno-lint-ignore no-explicit-any
  persistSkillActivations(activations: any): unknown;
  // deno-lint-ignore no-explicit-any
  recordPolicyEvent(event: any): unknown;
}

/** The client of the model, as cf-harness has it. */
export interface Model {
  readonly providerId: string;
  // deno-lint-ignore no-explicit-any
  complete(request: any): Promise<any>;
}

/** What cf-harness exports as ./tools: the tools on offer, and the same by id. */
export interface ToolTable {
  BUILTIN_TOOLS: readonly unknown[];
  // deno-lint-ignore no-explicit-any
  BUILTIN_TOOL_REGISTRY: Map<any, any>;
}

export interface AttachOptions<M extends Model> {
  server: Skillsd;
  engine: Engine;
  model: M;
  /** The evidence of who asked for the run. Its children have the same. */
  promptSlot?: unknown;
  /** Names of skills that are loaded before the first turn. */
  preload: readonly string[];
  /** Names of the profiles of children that the server has as well. It always has "browser". */
  profiles: readonly string[];
  /**
   * What a refusal by skillsd's policy becomes: its ObservationDenied object, or, for what cf-harness knows
   * as an error, an output with status "error".
   */
  denials: "observation" | "output";
  /** Keeps the keys "skillsd" in records and outputs. */
  extensions: boolean;
}

/** A run with its server. */
interface Run extends AttachOptions<Model> {
  runId: string;
  registry: Json;
  /** What narrows the calls of each child, by its run id. */
  children: Map<string, Promise<Json>>;
  /** Calls of the model that no tool has taken yet, by run id. */
  calls: Map<string, ModelCall[]>;
}

interface ModelCall {
  id: string;
  name: string;
  arguments: string;
}

/** One call of a tool, from cf-harness to skillsd. */
interface ToolCall {
  run: Run;
  /** cf-harness's HarnessToolContext. */
  context: Json;
  toolId: string;
  input: Json;
  outputId: string;
  at: string;
  /** The model's id of the call, if it is known. */
  id?: string;
  meta: Json;
}

type Handler = (call: ToolCall) => Promise<Json>;

const runs = new Map<string, Run>();

/** Puts skillsd's tools into cf-harness's table. A model reads skillsd's descriptions of them. */
export async function install(server: Skillsd, table: ToolTable): Promise<void> {
  for (const tool of await server.tools()) {
    const handler = handlers[tool.name];
    if (handler === undefined) {
      continue;
    }
    let known = table.BUILTIN_TOOL_REGISTRY.get(tool.name);
    if (known === undefined) {
      known = newTool(tool);
      table.BUILTIN_TOOL_REGISTRY.set(tool.name, known);
      (table.BUILTIN_TOOLS as unknown[]).push(known);
    }
    Object.assign(known.descriptor, { description: tool.description, inputSchema: tool.inputSchema });
    // A second server replaces the descriptions; the tool must not wrap itself once more.
    const native = known.invoke.native ?? known.invoke;
    const invoke = async (context: Json, input: Json) => {
      const run = runOf(context.runId);
      if (run === undefined) {
        return native(context, input);
      }
      return await handler(await begin(run, context, tool.name, input));
    };
    known.invoke = Object.assign(invoke, { native });
  }
}

function newTool(tool: Json): Json {
  const { name, annotations } = tool;
  return {
    descriptor: {
      toolId: name,
      title: annotations?.title ?? tool.title ?? name,
      effectClass: annotations?.readOnlyHint ? "read" : "side-effect",
      tags: ["skill", "context"],
    },
    invoke: () => Promise.reject(new Error(`${name} works in a run that skillsd is attached to`)),
  };
}

/** Gives a run its server. The run uses the model and sends the messages that are returned. */
export async function attach<M extends Model>(
  options: AttachOptions<M>,
): Promise<{ model: M; contextMessages: string[] }> {
  const { server, engine, extensions, preload } = options;
  const runId = engine.getRunState().runId;
  const meta = sessionMeta(runId);
  const source = { "skillsd/activation-source": "cli-preload" };
  for (const name of preload) {
    const loaded = await server.call("load_skill", { name }, { ...meta, ...source });
    if (loaded.denied !== undefined || loaded.result === undefined) {
      throw new Error(`cannot load the skill ${name}: ${loaded.text}`);
    }
  }
  const registry = await server.file("skill-registry.json", meta);
  const run: Run = {
    ...options,
    runId,
    registry: extensions ? registry : plain(registry),
    children: new Map(),
    calls: new Map(),
  };
  runs.set(runId, run);
  await engine.persistSkillRegistry(run.registry);
  const model = noting(options.model, run);
  if (preload.length === 0) {
    return { model, contextMessages: [] };
  }
  const active = await server.file("skill-activations.json", meta);
  await engine.persistSkillActivations(extensions ? active : plain(active));
  const texts: string[] = [];
  for (const activation of active.activations) {
    texts.push(await server.read(uriOf(activation.sandboxSkillPath, registry), meta));
  }
  return { model, contextMessages: [contextMessage(registry, active.activations, texts)] };
}

/** The model, which notes the ids of the calls that it makes: cf-harness does not hand them to its tools. */
function noting<M extends Model>(model: M, run: Run): M {
  const complete = async (request: Json) => {
    const turn = await model.complete(request);
    const made = run.calls.get(request.runId) ?? [];
    for (const call of turn.assistant.toolCalls ?? []) {
      made.push({ id: call.id, ...call.function });
    }
    run.calls.set(request.runId, made);
    return turn;
  };
  return Object.create(model, { providerId: { value: model.providerId }, complete: { value: complete } });
}

/** Returns the id of the first noted call with this tool and input, which is then taken. */
function takeCallId(run: Run, context: Json, toolId: string, input: Json): string | undefined {
  if (context.call !== undefined) {
    return context.call.toolCallId;
  }
  const made = run.calls.get(context.runId) ?? [];
  const wanted = JSON.stringify(input);
  const at = made.findIndex((call) =>
    call.name === toolId && JSON.stringify(JSON.parse(call.arguments)) === wanted
  );
  return at < 0 ? undefined : made.splice(at, 1)[0].id;
}

const runOf = (runId: string): Run | undefined =>
  runs.get(runId) ?? runs.get(runId.replace(/(\.subagent\.\d+)+$/, ""));

/** A session of skillsd has the name and the id of the run. */
const sessionMeta = (runId: string): Json => ({ "skillsd/session": runId, "skillsd/run-id": runId });

/** Returns the URI of a file that has a path in the sandbox. */
function uriOf(sandboxPath: string, registry: Json): string {
  const relative = sandboxPath.slice(registry.sandboxSkillsRoot.length + 1);
  return `skill://${relative.split("/").map(encodeURIComponent).join("/")}`;
}

async function begin(run: Run, context: Json, toolId: string, input: Json): Promise<ToolCall> {
  const outputId = context.nextOutputId(toolId);
  const id = takeCallId(run, context, toolId, input);
  const meta = sessionMeta(context.runId);
  meta["skillsd/mode"] = context.cfcEnforcementMode;
  const slot = context.call?.promptSlotBinding ?? run.promptSlot;
  if (slot !== undefined) {
    meta["skillsd/prompt-slot"] = slot;
  }
  if (context.browserAccess !== undefined) {
    meta["skillsd/browser-lease"] = context.browserAccess;
  }
  if (context.runId !== run.runId) {
    let child = run.children.get(context.runId);
    if (child === undefined) {
      child = startChild(run, context, { ...meta });
      run.children.set(context.runId, child);
    }
    Object.assign(meta, await child);
  }
  if (id !== undefined) {
    meta["skillsd/tool-call-id"] = id;
  }
  meta["skillsd/output-id"] = outputId;
  return { run, context, toolId, input, outputId, at: context.now(), id, meta };
}

/**
 * Returns what narrows the calls of a child, and loads the skills that cf-harness gave it: in skillsd a
 * child inherits none.
 */
async function startChild(run: Run, context: Json, meta: Json): Promise<Json> {
  const child: Json = { "skillsd/parent-session": run.runId };
  const started = run.engine.getRunState().subagentRuns ?? [];
  const profile = started.find((each: Json) => each.childRunId === context.runId)?.manifest.profile;
  if (run.profiles.includes(profile)) {
    child["skillsd/profile"] = profile;
  }
  // A profile of skillsd may have activated some of them; to load one again changes nothing.
  const source = { "skillsd/activation-source": "subagent-inherit" };
  for (const { name } of context.skillActivations?.activations ?? []) {
    await run.server.call("load_skill", { name }, { ...meta, ...child, ...source });
  }
  return child;
}

const ask = ({ run, context, toolId, input, meta }: ToolCall): Promise<Answer> =>
  run.server.call(toolId, input, meta, context.signal);

/** Returns an object of skillsd with the ids of the run. */
function own({ run, context, outputId }: ToolCall, value: Json): Json {
  const adopted: Json = { ...(run.extensions ? value : plain(value)), outputId };
  if ("runId" in value) {
    adopted.runId = context.runId;
  }
  return adopted;
}

/** Returns the row that the call left in a file of skillsd's session. */
function rowIn(call: ToolCall, answer: Answer, file: string): Json | undefined {
  return answer.records?.file === file ? own(call, answer.records.record) : undefined;
}

/** Records a refusal by skillsd as an event of the policy, where cf-harness lets a tool do that. */
async function deny({ run, context, toolId, input, outputId, id }: ToolCall, denied: Json): Promise<Json> {
  const event: Json = { severity: "denied", mode: context.cfcEnforcementMode, toolId };
  if (id !== undefined) {
    event.toolCallId = id;
  }
  if (run.promptSlot !== undefined) {
    event.promptSlot = run.promptSlot;
  }
  event.toolInputSummary = summary(toolId, input);
  event.detail = denied.detail ?? `${toolId} was denied`;
  event.observationDenied = denied;
  if (context.call !== undefined) {
    await context.call.recordPolicyEvent(event);
  } else if (context.runId === run.runId) {
    await run.engine.recordPolicyEvent(event);
  }
  return { ...denied, outputId };
}

async function readSkillResource(call: ToolCall): Promise<Json> {
  const { run, context, input } = call;
  const answer = await ask(call);
  if (answer.denied !== undefined && run.denials === "observation") {
    return deny(call, answer.denied);
  }
  const output = own(call, outputOf(readType, answer, input));
  const row = rowIn(call, answer, "skill-resource-reads.json");
  await context.recordSkillResourceRead(row ?? rowOf(output, context.runId, call.at));
  return output;
}

function outputOf(type: string, answer: Answer, input: Json): Json {
  if (answer.denied !== undefined) {
    return refused(type, answer.denied, input, answer.records?.decision);
  }
  return answer.result?.type === type ? answer.result : failed(type, answer.text, input);
}

async function runSkillScript(call: ToolCall): Promise<Json> {
  const { run, context, input } = call;
  const answer = await ask(call);
  if (answer.denied !== undefined && run.denials === "observation") {
    return deny(call, answer.denied);
  }
  const output = own(call, outputOf(runType, answer, input));
  const row = rowIn(call, answer, "skill-script-executions.json");
  if (output.status === "executed" && output.executionTarget === "sandbox") {
    await recordInvocation(call, answer, output);
  }
  if (row !== undefined) {
    await context.recordSkillScriptExecution(row);
  } else {
    const file = registered(context.skillRegistry, output.skill, output.path);
    await context.recordSkillScriptExecution(rowOf(output, context.runId, call.at, file?.resourcePath));
  }
  return output;
}

/** Records what cf-harness would have handed to a sandbox of its own. */
async function recordInvocation({ run, context, input, meta }: ToolCall, answer: Answer, output: Json) {
  const inputs = answer.records?.cfcInvocationContext?.inputs;
  if (inputs === undefined) {
    return;
  }
  const labelled = input.cwd === undefined ? ["argv", "args", "env"] : ["argv", "args", "cwd", "env"];
  const options: Json = {
    toolId: "run_skill_script",
    toolOutputId: output.outputId,
    operation: "command",
    cwd: output.cwd,
    argv: output.argv,
    args: output.args,
    // Of variables only the names are recorded.
    env: Object.fromEntries((inputs.env?.names ?? []).map((name: string) => [name, ""])),
    cfcInputLabelPaths: labelled.map((name) => [name]),
  };
  // An interpreter with -s reads the script from stdin.
  if (output.argv.includes("-s")) {
    options.stdinText = await run.server.read(uriOf(output.sandboxResourcePath, run.registry), meta);
  }
  await context.createCfcInvocationContext(options);
}

async function loadSkill(call: ToolCall): Promise<Json> {
  const { run, context } = call;
  const answer = await ask(call);
  if (answer.denied !== undefined) {
    return deny(call, answer.denied);
  }
  const activation = rowIn(call, answer, "skill-activations.json");
  if (activation !== undefined && context.runId === run.runId) {
    const before = run.engine.getRunState().skillActivations?.activations ?? [];
    delete activation.outputId;
    await run.engine.persistSkillActivations({
      type: "cf-harness.skill-activations",
      version: 1,
      generatedAt: context.now(),
      activations: [...before, activation],
    });
  }
  const read = rowIn(call, answer, "skill-resource-reads.json");
  if (read !== undefined) {
    await context.recordSkillResourceRead(read);
  }
  return { ...own(call, answer.result ?? {}), content: answer.text };
}

const handlers: Record<string, Handler> = {
  read_skill_resource: readSkillResource,
  run_skill_script: runSkillScript,
  load_skill: loadSkill,
};
