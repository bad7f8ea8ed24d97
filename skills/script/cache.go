package script

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// A CacheJob is a command that makes an interpreter compile the modules of a tree, so that later runs need
// not. It compiles modules and runs none. [CacheJob.Files] validates the resulting files.
//
// A compiled module is bound to its source twice: the caller stores it with the digest of the tree that it
// was made from, and it contains a hash of the source, which the interpreter compares with the module that it
// loads. If they differ, the interpreter compiles the module again.
type CacheJob struct {
	Argv  []string
	Env   []string // the complete environment
	Stdin []byte   // nil: empty

	files func(out map[string][]byte) (map[string][]byte, error)
}

// maxCompiled is the maximum number of modules in a tree to compile.
const maxCompiled = 1_000

// A cacheForm describes how modules are compiled ahead of a run.
type cacheForm struct {
	suffixes []string // extensions of modules
	least    int      // minimum number of modules; the script itself may never be compiled
	job      func(interpreter, dir, out, script string, modules []string) *CacheJob
}

// NewCacheJob returns the job for a run of script in a tree with these files. The tree is at dir, both during
// compilation and when it runs; the job writes its output below out. interpreter is an absolute path.
//
// It returns nil if compiling is of no use: the runtime compiles nothing ahead of a run, or the tree has too
// few modules, or more than 1,000.
func NewCacheJob(info Info, interpreter, dir, out, script string, files []string) *CacheJob {
	in := info.Runtime.Interpreter()
	if in == nil || in.cache == nil {
		return nil
	}
	modules := withSuffix(files, in.cache.suffixes...)
	if len(modules) < in.cache.least || len(modules) > maxCompiled {
		return nil
	}
	return in.cache.job(interpreter, dir, out, script, modules)
}

func withSuffix(files []string, suffixes ...string) (found []string) {
	for _, f := range files {
		for _, suffix := range suffixes {
			// A file that is named ".py" is not a module.
			if strings.HasSuffix(f, suffix) && len(path.Base(f)) > len(suffix) {
				found = append(found, f)
			}
		}
	}
	return found
}

// The minimum sizes of caches, in bytes. Looking up a smaller cache takes as long as compiling again.
const (
	leastPython = 4 << 10
	leastDeno   = 16 << 10
)

// worth returns files if their total size is at least least, else nil.
func worth(files map[string][]byte, least int) map[string][]byte {
	n := 0
	for _, data := range files {
		n += len(data)
	}
	if n < least {
		return nil
	}
	return files
}

// Files returns the files to store from the output of the job, by the path where the interpreter looks for
// them: below the directory of the tree, or below [Interpreter.CacheDir]. It is empty if there is no benefit.
// The files were made by a program that read hostile text, so anything unexpected is an error, and then
// nothing is stored.
func (j *CacheJob) Files(out map[string][]byte) (map[string][]byte, error) { return j.files(out) }

// pythonProgram compiles the modules listed on standard input, if some module imports one with that name,
// into numbered files. A module with compiler warnings is skipped, so that every run prints them.
const pythonProgram = `import sys
sys.path[:] = [p for p in sys.path if p]
import ast, os, py_compile, warnings
warnings.simplefilter("ignore")
warnings.simplefilter("error", SyntaxWarning)
top, out, every = sys.argv[1:]
modules = [os.fsdecode(m) for m in sys.stdin.buffer.read().split(b"\0")]
names = set()
for m in modules if not every else ():
    try:
        with open(os.path.join(top, m), "rb") as f:
            tree = ast.parse(f.read())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names.update((node.module or "").split("."))
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for a in node.names:
                    names.update(a.name.split("."))
    except (SyntaxError, ValueError, SyntaxWarning):
        pass
for i, m in enumerate(modules):
    head, name = os.path.split(m)
    if name == "__init__.py":
        name = os.path.basename(head) + ".py"
    if every or name[:-3] in names:
        try:
            py_compile.compile(os.path.join(top, m), os.path.join(out, "%d.pyc" % i), doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        except (py_compile.PyCompileError, SyntaxError, ValueError, SyntaxWarning):
            pass
with open(os.path.join(out, "tag"), "w") as f:
    f.write(sys.implementation.cache_tag)
`

// pythonJob returns the job of python3, which writes numbered files and its tag.
func pythonJob(interpreter, dir, out, _ string, modules []string) *CacheJob {
	return &CacheJob{
		// -s and -S: no packages of the host are loaded.
		Argv: []string{interpreter, "-s", "-S", "-B", "-c", pythonProgram, dir, out, ""},
		// Reproducible output: the same source gives the same bytes.
		Env:   []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONHASHSEED=0"},
		Stdin: []byte(strings.Join(modules, "\x00")),
		files: func(left map[string][]byte) (map[string][]byte, error) {
			keep, err := pythonFiles(modules, left)
			return worth(keep, leastPython), err
		},
	}
}

// NewCompileJob returns the job that compiles all of modules, which python3 finds below dir, into the
// directory out.
func NewCompileJob(interpreter, dir, out string, modules []string) *CacheJob {
	job := pythonJob(interpreter, dir, out, "", modules)
	job.Argv[len(job.Argv)-1] = "every"
	job.files = func(left map[string][]byte) (map[string][]byte, error) { return pythonFiles(modules, left) }
	return job
}

// pythonTag matches the part of a compiled module's file name that identifies the interpreter.
var pythonTag = pattern.New(`^[a-z]{1,16}-[0-9]{1,8}$`)

// pythonFiles maps compiled modules to paths next to their sources.
func pythonFiles(modules []string, left map[string][]byte) (map[string][]byte, error) {
	// The tag becomes a part of file names that the interpreter looks up in the skill.
	tag := string(left["tag"])
	if !pythonTag().MatchString(tag) {
		return nil, fmt.Errorf("the interpreter calls itself %q", clip(tag))
	}
	keep := map[string][]byte{}
	for name, data := range left {
		if name == "tag" {
			continue
		}
		// Only numbers of the job are accepted, so a name cannot choose where its bytes are stored.
		number, ok := strings.CutSuffix(name, ".pyc")
		i, err := strconv.Atoi(number)
		// The comparison of the text refuses other spellings of a number, such as 01, which would name one
		// module twice.
		if !ok || err != nil || i < 0 || i >= len(modules) || strconv.Itoa(i) != number {
			return nil, fmt.Errorf("unexpected file %q", clip(name))
		}
		if err := checkPyc(data); err != nil {
			return nil, fmt.Errorf("%s: %w", modules[i], err)
		}
		head, file := path.Split(modules[i])
		keep[head+"__pycache__/"+strings.TrimSuffix(file, ".py")+"."+tag+".pyc"] = data
	}
	return keep, nil
}

const (
	pycHead    = 16 // magic number, flags, hash of the source
	pycChecked = 3  // with a hash that the interpreter checks
)

// checkPyc returns an error unless the interpreter will compare a compiled module with its source.
func checkPyc(data []byte) error {
	if len(data) <= pycHead || data[2] != '\r' || data[3] != '\n' {
		return fmt.Errorf("%d bytes are not a compiled module", len(data))
	}
	// A module with a time or an unchecked hash would run even if its source is another one (PEP 552).
	if flags := binary.LittleEndian.Uint32(data[4:]); flags != pycChecked {
		return fmt.Errorf("flags %#x of a compiled module", flags)
	}
	return nil
}

// denoJob returns the job of deno, which translates a script and its imports into its own directory.
func denoJob(interpreter, dir, out, script string, modules []string) *CacheJob {
	return &CacheJob{
		Argv: []string{
			interpreter, "cache", "--no-remote", "--no-npm", "--no-config", "--no-lock", "--quiet",
			dir + "/" + script,
		},
		Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + out, "DENO_DIR=" + out,
			"DENO_NO_PACKAGE_JSON=1", "DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1"},
		files: func(left map[string][]byte) (map[string][]byte, error) {
			return denoFiles(dir, modules, left)
		},
	}
}

// plainPath matches paths that deno uses unchanged in the names of its files.
var plainPath = pattern.New(`^[A-Za-z0-9._/-]+$`)

// denoFiles returns the modules that deno translated. Its databases would cost more to look up than they
// save.
func denoFiles(dir string, modules []string, left map[string][]byte) (map[string][]byte, error) {
	expected := map[string]bool{}
	for _, m := range modules {
		if plainPath().MatchString(m) {
			expected["file"+dir+"/"+m+".js"] = true
		}
	}
	keep := map[string][]byte{}
	for name, data := range left {
		rest, ok := strings.CutPrefix(name, "gen/")
		if !ok {
			continue
		}
		// Without this check a hostile source could place code under the name of another module.
		if !expected[rest] {
			return nil, fmt.Errorf("unexpected file %q", clip(name))
		}
		last := data[bytes.LastIndexByte(data, '\n')+1:]
		if !denoHashes().Match(last) {
			return nil, fmt.Errorf("%s has no hash of its source", rest)
		}
		keep[rest] = data
	}
	return worth(keep, leastDeno), nil
}

// denoHashes matches the line by which deno identifies the source of a translated module.
var denoHashes = pattern.New(`^// denoCacheMetadata=[0-9]{1,20},[0-9]{1,20}$`)
