package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/text/width"
)

// scriptCommands returns the commands of scripts besides those of testscript:
//
//	exits CODE PROGRAM [ARG...]   runs a program that must end with exactly this code
//	fits COLUMNS FILE [PATTERN]   no line of FILE is wider, except those that match PATTERN
//	quiet FILE...                 no character of FILE moves a cursor or turns the direction of text
//	conforms FILE SCHEMA          FILE, or each of its lines, is JSON as `skillsd schema SCHEMA` describes it
//	web DIR [TOKEN]               serves DIR over http, to who has the token, and sets WEB to its URL and WEBHOST
//	sign KEY FILE                 makes a key, writes its public half to KEY and a bundle to FILE.sigstore.json
//	sigstore ROOT                 starts a Sigstore, writes its trusted_root.json to ROOT, and sets VERIFIER to the
//	                              program that verifies identities, and VERIFIERDIR to its directory
//	sign-as ROOT IDENTITY ISSUER FILE|DIR|oci://REFERENCE
//	                              signs as an identity: into FILE.sigstore.json, DIR/skill.sigstore, or the registry
//	registry                      starts a registry of images, and sets REGISTRY to its host and port
//	terminal COLUMNS FILE PROGRAM [ARG...]
//	                              runs a program on a terminal and writes into FILE what the terminal received
//	typed AHEAD ANSWER COLUMNS FILE PROGRAM [ARG...]
//	                              is terminal with the line AHEAD typed before the program starts,
//	                              unless it is empty, and the line ANSWER when it asks with [y/N]
//
// FILE may be stdout or stderr.
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"index": scriptIndex, "rootfs": scriptRootfs, "web": scriptWeb, "registry": scriptRegistry, "sign": scriptSign,
		"sigstore": scriptSigstore, "sign-as": scriptSignAs,
		"exits": scriptExits, "fits": scriptFits, "quiet": scriptQuiet, "conforms": scriptConforms, "terminal": scriptTerminal, "typed": scriptTyped,
	}
}

func scriptWeb(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: web DIR [TOKEN]")
	}
	files := http.FileServer(http.Dir(ts.MkAbs(args[0])))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(args) == 2 && r.Header.Get("Authorization") != "Bearer "+args[1] {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	}))
	ts.Setenv("WEB", server.URL)
	ts.Setenv("WEBHOST", strings.TrimPrefix(server.URL, "http://"))
	ts.Defer(server.Close)
}

func scriptRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: registry")
	}
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	ts.Setenv("REGISTRY", strings.TrimPrefix(server.URL, "http://"))
	ts.Defer(server.Close)
}

func scriptSign(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sign KEY FILE")
	}
	ts.Check(sign(ts.MkAbs(args[0]), ts.MkAbs(args[1])))
}

// sign signs a file, and writes the public key.
func sign(key, file string) error {
	// Who signed before signs with the same key.
	var private *ecdsa.PrivateKey
	kept := key + ".private"
	der, err := os.ReadFile(kept)
	if err == nil {
		private, err = x509.ParseECPrivateKey(der)
	} else if private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err == nil {
		der, err = x509.MarshalECPrivateKey(private)
		err = errors.Join(err, os.WriteFile(kept, der, 0o600))
	}
	if err != nil {
		return err
	}
	der, err = x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return err
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	data, err := os.ReadFile(file)
	if err = errors.Join(err, os.WriteFile(key, public, 0o600)); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	signature, err := ecdsa.SignASN1(rand.Reader, private, sum[:])
	if err != nil {
		return err
	}
	bundle, err := json.Marshal(map[string]any{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
		"messageSignature": map[string]any{"signature": signature}})
	return errors.Join(err, os.WriteFile(file+".sigstore.json", bundle, 0o600))
}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		failed, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = failed.ExitCode()
	}
	ts.Logf("[stdout]\n%s[stderr]\n%s", ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func scriptFits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: fits COLUMNS FILE [PATTERN]")
	}
	most, err := strconv.Atoi(args[0])
	ts.Check(err)
	var but *regexp.Regexp
	if len(args) == 3 {
		but, err = regexp.Compile(args[2])
		ts.Check(err)
	}
	text := ts.ReadFile(args[1])
	if text == "" {
		ts.Fatalf("%s is empty", args[1])
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if n := columnsOf(line); n > most && (but == nil || !but.MatchString(line)) {
			ts.Fatalf("a line of %s has %d columns, more than %d:\n%s", args[1], n, most, line)
		}
	}
}

// columnsOf returns the number of columns that a text takes on a terminal.
func columnsOf(text string) int {
	n := 0
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case width.LookupRune(r).Kind() == width.EastAsianWide, width.LookupRune(r).Kind() == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

func scriptQuiet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: quiet FILE...")
	}
	for _, name := range args {
		text := ts.ReadFile(name)
		loud := func(r rune) bool {
			joiner := r == '\u200c' || r == '\u200d'
			return r != '\n' && r != '\t' && !joiner && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
		}
		if at := strings.IndexFunc(text, loud); at >= 0 {
			ts.Fatalf("%s has a control character, after %q: %q", name, text[max(0, at-60):at], text[at:min(len(text), at+8)])
		}
	}
}

func scriptConforms(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: conforms FILE SCHEMA")
	}
	text := ts.ReadFile(args[0])
	out, err := exec.Command(binary, "schema", args[1]).Output()
	ts.Check(err)
	schema := new(jsonschema.Schema)
	ts.Check(json.Unmarshal(out, schema))
	resolved, err := schema.Resolve(nil)
	ts.Check(err)
	documents := [][]byte{[]byte(text)}
	if strings.HasPrefix(schema.Title, "A line") {
		documents = bytes.Split(bytes.TrimSuffix([]byte(text), []byte("\n")), []byte("\n"))
	}
	for _, document := range documents {
		var value any
		if err := json.Unmarshal(document, &value); err != nil {
			ts.Fatalf("%s is not JSON: %v\n%s", args[0], err, document)
		}
		if err := resolved.Validate(value); err != nil {
			ts.Fatalf("%s does not conform to %s: %v", args[0], args[1], err)
		}
	}
}

func scriptTerminal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: terminal COLUMNS FILE PROGRAM [ARG...]")
	}
	runOnTerminal(ts, typing{}, args)
}

func scriptTyped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 5 {
		ts.Fatalf("usage: typed AHEAD ANSWER COLUMNS FILE PROGRAM [ARG...]")
	}
	keys := typing{Answer: strings.ReplaceAll(args[1], ",", "\n") + "\n"}
	if args[0] != "" {
		keys.Ahead = args[0] + "\n"
	}
	runOnTerminal(ts, keys, args[2:])
}

// typing is the input of a user at a terminal.
type typing struct {
	Ahead  string // before the program starts
	Answer string // a line for each question that it asks; ^D at its end is the key, instead of Enter
}

// runOnTerminal runs a program with the arguments of the command terminal.
func runOnTerminal(ts *testscript.TestScript, keys typing, args []string) {
	columns, err := strconv.Atoi(args[0])
	ts.Check(err)
	var env []string
	for _, name := range []string{"HOME", "PATH", "NO_COLOR", "SKILLSD_CONFIG", "SKILLSD_STATE", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "CLAUDECODE"} {
		if value := ts.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	program, err := exec.LookPath(args[2])
	if args[2] == "skillsd" {
		program, err = binary, nil
	}
	ts.Check(err)
	cmd := exec.Command(program, args[3:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), env
	text, err := onTerminal(cmd, columns, keys)
	ts.Check(err)
	ts.Logf("[terminal]\n%q", text)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), text, 0o600))
}
