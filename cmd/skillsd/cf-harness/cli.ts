// cf-harness's own command line with the skills of skillsd. cf-harness itself is not changed.
//
//   cli.ts [FLAGS] skillsd serve [SERVE-FLAGS] --- CF-HARNESS-FLAGS
//   cli.ts [FLAGS] --url URL [--token-env NAME] --- CF-HARNESS-FLAGS
//
// --skill NAME loads a skill before the first turn and hands its instructions to the model. --load-skill
// offers load_skill to the model. --profile NAME is a profile of children that the server has as well, next
// to "browser", which it always has. --skill and --profile can be given more than once. --token-env names
// the variable with the bearer token. cf-harness gets no --skills-root: skillsd has the skills.
import { runCfHarnessCli, type RunCfHarnessCliDependencies } from "@commonfabric/cf-harness/cli";
import { CfHarnessPromptLoop } from "@commonfabric/cf-harness/prompt-loop";
import * as tools from "@commonfabric/cf-harness/tools";
import { attach, install } from "./adapter.ts";
import { type Json, type Place, Skillsd } from "./skillsd.ts";

interface Flags {
  place: Place;
  preload: string[];
  profiles: string[];
  loadSkill: boolean;
  /** The words after ---. */
  rest: string[];
}

const usage = "cli.ts [--skill NAME]... [--profile NAME]... [--load-skill] " +
  "(--url URL [--token-env NAME] | COMMAND...) --- FLAGS";

export function parse(argv: string[]): Flags {
  const cut = argv.indexOf("---");
  if (cut < 0) {
    throw new Error(`--- is missing: ${usage}`);
  }
  const words = argv.slice(0, cut);
  const preload: string[] = [];
  const profiles = ["browser"];
  let loadSkill = false;
  let url: string | undefined;
  let token: string | undefined;
  while (words[0]?.startsWith("--")) {
    const flag = words.shift();
    if (flag === "--load-skill") {
      loadSkill = true;
      continue;
    }
    const value = words.shift();
    if (value === undefined) {
      throw new Error(`${flag} needs a value: ${usage}`);
    }
    switch (flag) {
      case "--skill":
        preload.push(value);
        break;
      case "--profile":
        profiles.push(value);
        break;
      case "--url":
        url = value;
        break;
      case "--token-env":
        token = Deno.env.get(value);
        if (token === undefined) {
          throw new Error(`the variable ${value} is not set`);
        }
        break;
      default:
        throw new Error(`unknown flag ${flag}: ${usage}`);
    }
  }
  const [command, ...args] = words;
  if ((url === undefined) === (command === undefined)) {
    throw new Error(`give either --url or a command: ${usage}`);
  }
  const place = url === undefined ? { command, args } : { url, token };
  return { place, preload, profiles, loadSkill, rest: argv.slice(cut + 1) };
}

/** Runs cf-harness's command line and returns its exit code. */
export async function main(argv: string[], dependencies: RunCfHarnessCliDependencies = {}): Promise<number> {
  const { place, preload, profiles, loadSkill, rest } = parse(argv);
  const server = await Skillsd.connect(place);

  // A loop asks for its model when it starts to run, so that is when its run is attached.
  const attached = async (options: Json, promptSlot: unknown) => {
    const { model, contextMessages } = await attach({
      server,
      engine: options.engine,
      model: new CfHarnessPromptLoop(options).modelClient,
      promptSlot,
      preload,
      profiles,
      denials: "observation",
      extensions: false,
    });
    let { allowedToolIds } = options;
    if (allowedToolIds !== undefined && loadSkill) {
      allowedToolIds = [...allowedToolIds, "load_skill"];
    }
    const loop = new CfHarnessPromptLoop({ ...options, modelClient: model, allowedToolIds });
    return { loop, contextMessages };
  };

  try {
    await install(server, tools);
    return await runCfHarnessCli(rest, {
      ...dependencies,
      createPromptLoop: (options) => ({
        runPrompt: async (prompt) => {
          const { loop, contextMessages } = await attached(options, prompt.promptSlotBinding);
          const messages = [...contextMessages, ...(prompt.contextMessages ?? [])];
          return await loop.runPrompt({ ...prompt, contextMessages: messages });
        },
        runTranscript: async (transcript) => {
          const { loop } = await attached(options, transcript.promptSlotBinding);
          return await loop.runTranscript(transcript);
        },
      }),
    });
  } finally {
    await server.close();
  }
}

if (import.meta.main) {
  Deno.exit(await main(Deno.args));
}
