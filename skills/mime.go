package skills

import (
	"path"
	"strings"

	"github.com/gabriel-vasile/mimetype"
)

// byExtension lists types that the extension shows more reliably than the bytes.
var byExtension = map[string]string{
	".md":       "text/markdown",
	".markdown": "text/markdown",
	".txt":      "text/plain",
	".csv":      "text/csv",
	".tsv":      "text/tab-separated-values",
	".html":     "text/html",
	".htm":      "text/html",
	".css":      "text/css",
	".xml":      "application/xml",
	".xsd":      "application/xml",
	".svg":      "image/svg+xml",
	".json":     "application/json",
	".jsonl":    "application/jsonl",
	".yaml":     "application/yaml",
	".yml":      "application/yaml",
	".toml":     "application/toml",
	".sh":       "application/x-sh",
	".bash":     "application/x-sh",
	".py":       "text/x-python",
	".js":       "text/javascript",
	".mjs":      "text/javascript",
	".cjs":      "text/javascript",
	".ts":       "text/typescript",
	".tsx":      "text/typescript",
	".mts":      "text/typescript",
	".jsx":      "text/javascript",
	".go":       "text/x-go",
	".rs":       "text/x-rust",
	".rb":       "text/x-ruby",
	".java":     "text/x-java",
	".c":        "text/x-c",
	".h":        "text/x-c",
	".sql":      "application/sql",
	".pdf":      "application/pdf",
	".png":      "image/png",
	".jpg":      "image/jpeg",
	".jpeg":     "image/jpeg",
	".gif":      "image/gif",
	".webp":     "image/webp",
	".ttf":      "font/ttf",
	".otf":      "font/otf",
	".woff":     "font/woff",
	".woff2":    "font/woff2",
	".zip":      "application/zip",
	".docx":     "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx":     "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx":     "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}

// mimeType returns a file's type without parameters. If name and content disagree about being text, the
// content decides.
func mimeType(file string, head []byte, isText bool) string {
	named := byExtension[strings.ToLower(path.Ext(file))]
	if named != "" && textual(named) == isText {
		return named
	}
	if isText {
		return "text/plain"
	}
	found, _, _ := strings.Cut(mimetype.Detect(head).String(), ";")
	// The bytes are not text, so a textual type would make clients decode them.
	if textual(found) {
		return "application/octet-stream"
	}
	return found
}

func textual(mime string) bool {
	if strings.HasPrefix(mime, "text/") {
		return true
	}
	switch mime {
	case "application/json", "application/jsonl", "application/yaml", "application/toml", "application/xml",
		"application/sql", "application/x-sh", "image/svg+xml":
		return true
	}
	return false
}
