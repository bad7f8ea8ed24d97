package provenance

// The two ways to read a line whose hash was checked.
var (
	QuickLine = readLine
	SlowLine  = decode
)

// JSONValue returns the length of the JSON value at the start of a text.
var JSONValue = jsonValue
