package mcpserver

// A MetaKey is a key of the _meta of a request that this server reads.
type MetaKey struct {
	Key string
	// Evidence is set if the key is accepted only from principals with trusted evidence: the user of a stdio
	// process, and over HTTP the principals that the operator names. From others it is ignored and logged.
	Evidence bool
	Means    string // its meaning, and the default without it
	Wrong    string // the result of an invalid value
	Schema   string // of the value, in JSON
}

// Words of the table of keys.
const (
	wrongArguments = "invalid_arguments"
	wrongIgnored   = "ignored, as if it were absent"

	schemaText = `{"type":"string","minLength":1}`
)

// RequestMeta returns the table of the keys that are read from the _meta of requests, in the order in which
// a caller needs them.
func RequestMeta() []MetaKey {
	return []MetaKey{
		{metaSession, false,
			"the caller's name for the run that the call belongs to: a session of its own, with " +
				"its own record, activations and numbers. It is looked up among the sessions of the " +
				"principal. Without it: threadId or sessionId, else the protocol session, on stdio the " +
				"process",
			wrongArguments, schemaText},
		{metaParent, false,
			"the parent of the session that the call belongs to, by its id or by the name that the " +
				"caller gave it; the child starts with nothing of its parent",
			wrongArguments, schemaText},
		{metaProfile, false,
			"the profile that narrows this call further; the call then belongs to a session of " +
				"that profile",
			wrongArguments, schemaText},
		{metaActivation, false,
			"the activation handle that load_skill returned, for calls that have no argument for it",
			"the denial activation_unknown", schemaText},
		{metaRunID, true, "the id of the session, of its directory and its rows, if the call begins one; " +
			"without it, ses_ and a UUID", "another id is made; the records of the call have requestedRunId",
			runIDSchema},
		{metaOutputID, true, "the id of the call's output, RUN:TOOL:NUMBER: the id of the session, " +
			"the name of " +
			"the tool and a number that is new in the session; the outputId of the result is the id " +
			"that counts",
			"ignored and logged: the output gets the next number", outputIDSchema},
		{metaSource, true, "how a skill came to be loaded, for the record of load_skill; with " +
			"user-explicit " +
			"a skill that hides itself from models is found. Without it, model-tool", wrongArguments,
			`{"enum":["cli-preload","model-tool","user-explicit","subagent-inherit"]}`},
		{metaToolCallID, false, "the caller's id of the tool call, for the record; without it " +
			"claudecode/toolUseId, callId or the id of the request", wrongIgnored, schemaText},
		{metaRecords, false, "whether the result has what the call left in the record, in " +
			`_meta["skillsd/records"]`, wrongIgnored, `{"type":"boolean"}`},
		{metaHostPaths, false, "whether the text of a result has where on this machine a binary file of a " +
			"skill or of /out is; on stdio only", wrongIgnored, `{"type":"boolean"}`},
		{metaPromptSlot, true,
			"who spoke the words behind the call: a PromptSlotBound object. Its role " +
				"direct-command is evidence of the user's will; the call's own slot decides alone. " +
				"Without it, the operator's --prompt-slot-role",
			"prompt_slot_invalid", promptSlotSchema},
		{metaMode, true, "the enforcement mode for the rest of the session, if it is stricter; a laxer one " +
			"changes nothing", wrongArguments,
			`{"enum":["disabled","observe","enforce-explicit","enforce-strict"]}`},
		{metaManifest, true,
			"the run manifest of the session: the session that a call begins keeps it. In each " +
				"call that has it, its prompt slot and its mode count as if the call had them, if it " +
				"has none of its own. Without it, the operator's --run-manifest",
			wrongArguments, `{"type":"object"}`},
		{metaInputLabels, true, "labels of the inputs of a run (argv, args, env, cwd), for its invocation " +
			"context", wrongArguments, inputLabelsSchema},
		{metaLease, true, "the browser that the caller lends to a script of agent-browser",
			"lease_invalid where a script needs one, invalid_arguments if it is not an object", leaseSchema},
		{"threadId", false, "a client's own id of its conversation; also sessionId", wrongIgnored,
			schemaText},
		{"sessionId", false, "as threadId, which comes first", wrongIgnored, schemaText},
		{"callId", false, "as skillsd/tool-call-id, which comes first", wrongIgnored, schemaText},
		{"claudecode/toolUseId", false, "as skillsd/tool-call-id, which comes first", wrongIgnored,
			schemaText},
		{"turn_id", false, "the caller's id of the model's turn, for the record; also turnId", wrongIgnored,
			schemaText},
		{"turnId", false, "as turn_id, which comes first", wrongIgnored, schemaText},
		{"x-codex-turn-metadata", false, "of which turn_id is read", wrongIgnored,
			`{"type":"object","properties":{"turn_id":` + schemaText + `}}`},
		{metaSandboxState, false, "Codex's sandbox, of which the directory it works in is read " +
			"on stdio; it " +
			"counts only with --workspace-from-client", "no workspace", `{"type":"object"}`},
		{"traceparent", false, "the W3C trace context of the call, for spans; also tracestate", wrongIgnored,
			schemaText},
		{"tracestate", false, "goes with traceparent", wrongIgnored, schemaText},
		{"progressToken", false, "MCP's: asks for notifications while the call lasts", wrongIgnored,
			`{"type":["string","number"]}`},
	}
}

// Schemas of the values that are objects.
const (
	outputIDSchema = `{"type":"string","pattern":"^[^:]+:[^:]+:[1-9][0-9]*$"}`

	runIDSchema = `{"type":"string","minLength":1}`

	promptSlotSchema = `{"type":"object",
		"required":["type","source","role","kernelName","surface"],"properties":{
		"type":{"const":"https://commonfabric.org/cfc/atom/PromptSlotBound"},
		"source":{"anyOf":[{"type":"string","minLength":1},{"type":"object","minProperties":1}]},
		"role":{"enum":["direct-command","context","quote"]},
		"kernelName":{"type":"string","minLength":1},"surface":{"type":"string","minLength":1},
		"subject":{"type":"string"},"eventId":{"type":"string"},"valueDigest":{"type":"string"},
		"slotDigest":{"type":"string"},"snapshotDigest":{"type":"string"},
		"targetPath":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},
		"renderRef":{"type":"object","required":["seq","rootRef"],
			"properties":{"seq":{"type":"integer"},"rootRef":{"type":"string"}}}}}`

	inputLabelsSchema = `{"type":"object","required":["version","entries"],"additionalProperties":false,
		"properties":{"version":{"const":1},"entries":{"type":"array","maxItems":256,"items":{"type":"object",
		"required":["path","label"],"additionalProperties":false,"properties":{
		"path":{"type":"array","minItems":1,"maxItems":32,
			"prefixItems":[{"enum":["argv","args","env","cwd"]}],
			"items":{"anyOf":[{"type":"string"},{"type":"integer","minimum":0}]}},
		"label":{"type":"object","additionalProperties":false,"properties":{
			"confidentiality":{"type":"array"},"integrity":{"type":"array"}}}}}}}}`

	leaseSchema = `{"type":"object","required":["leaseId","cdpUrl","expiresAt"],"properties":{
		"leaseId":{"type":"string","minLength":1,"maxLength":200},
		"cdpUrl":{"type":"string","maxLength":200},
		"expiresAt":{"type":"string","format":"date-time"}}}`
)
