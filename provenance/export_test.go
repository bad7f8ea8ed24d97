package provenance

// The two ways to read a line whose hash was checked.
var (
	QuickLine = readLine
	SlowLine  = decode
)
