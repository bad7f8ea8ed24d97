// skillsd as a harness needs it: calls of its tools with their records, and the files of a session. Nothing
// here knows cf-harness; the other three files build on this one.
import { Client, StreamableHTTPClientTransport } from "npm:@modelcontextprotocol/client@2.4.0";
import { StdioClientTransport } from "npm:@modelcontextprotocol/client@2.4.0/stdio";

// deno-lint-ignore no-explicit-any
export type Json = Record<string, any>;

/** A server to start, which then speaks on stdin and stdout, or one that runs at a URL. */
export type Place =
  | { command: string; args: string[] }
  | { url: string; token?: string };

/** The answer to one call of a tool. */
export interface Answer {
  /** The text that the tool gives a model. */
  text: string;
  /** The same as an object, in the shape of the output of cf-harness's own tool. */
  result?: Json;
  /** What the call left in the record: a file's row, the policy events and the decision. */
  records?: Json;
  /** The ObservationDenied object, if the policy refused the call. */
  denied?: Json;
}

// A script may run for ten minutes; the server ends it, not the client.
const callTimeoutMs = 11 * 60_000;

export class Skillsd {
  private constructor(private readonly client: Client) {}

  /** Starts a server, or connects to one, and asks for the newest revision of the protocol that it has. */
  static async connect(place: Place): Promise<Skillsd> {
    const client = new Client(
      { name: "cf-harness", version: "1" },
      { versionNegotiation: { mode: "auto" } },
    );
    await client.connect("url" in place ? remote(place.url, place.token) : local(place.command, place.args));
    return new Skillsd(client);
  }

  /** The tools with their descriptions and schemas. */
  async tools(): Promise<Json[]> {
    const { tools } = await this.client.listTools();
    return tools;
  }

  /** Calls a tool. An abort of the signal cancels the call on the server, which ends its script. */
  async call(name: string, args: Json, meta: Json, signal?: AbortSignal): Promise<Answer> {
    const result: Json = await this.client.callTool(
      { name, arguments: args, _meta: { ...meta, "skillsd/records": true } },
      { signal, timeout: callTimeoutMs },
    );
    const text = (result.content ?? []).map((block: Json) => block.text ?? "").join("");
    const answer: Answer = {
      text,
      result: result._meta?.["skillsd/result"],
      records: result._meta?.["skillsd/records"],
    };
    if (result.structuredContent?.type === "cf-harness.observation-denied") {
      answer.denied = result.structuredContent;
    }
    return answer;
  }

  /** The text of a resource. A long one comes in parts, which must all be of one version. */
  async read(uri: string, meta: Json): Promise<string> {
    let text = "";
    let digest: unknown;
    let next: string | undefined = uri;
    while (next !== undefined) {
      const { contents }: Json = await this.client.readResource({ uri: next, _meta: meta });
      const part = contents[0];
      const partDigest = part._meta?.["skillsd/digest"];
      if (digest !== undefined && partDigest !== digest) {
        throw new Error(`${uri} changed while it was read`);
      }
      digest = partDigest;
      text += part.text ?? "";
      next = part._meta?.["skillsd/next"];
    }
    return text;
  }

  /** A file of the record of a session, such as skill-registry.json. */
  async file(name: string, meta: Json): Promise<Json> {
    return JSON.parse(await this.read(`skillsd://session/${name}`, meta));
  }

  close(): Promise<void> {
    return this.client.close();
  }
}

const local = (command: string, args: string[]): StdioClientTransport =>
  new StdioClientTransport({ command, args, stderr: "inherit" });

const remote = (url: string, token?: string): StreamableHTTPClientTransport => {
  const headers: Record<string, string> = token === undefined ? {} : { Authorization: `Bearer ${token}` };
  return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
};
