# Says which modules and files of its skill a script imports, and which modules this interpreter finds. It
# reads sources as data.
import sys

sys.path[:] = [p for p in sys.path if p]
import ast, base64, glob, importlib.machinery, importlib.util, json, os, struct, warnings

warnings.simplefilter("ignore")
HARD, REQUIRED, GUARDED, LAZY = range(4)
KINDS = ["hard", "required", "guarded", "lazy"]
CATCH = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
EXITS = {"exit", "quit", "_exit", "abort"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))
OWN = getattr(sys, "stdlib_module_names", frozenset())


def join(base, name):
    return base + "/" + name if base else name


def last(node):
    return getattr(node, "attr", getattr(node, "id", ""))


def truth(test, main):
    """Returns what a test at import time comes to, None if that is not known."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = truth(test.operand, main)
        return None if value is None else not value
    if last(test) == "TYPE_CHECKING":
        return False
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    try:
        want = ast.literal_eval(test.comparators[0])
    except ValueError:
        return None
    known = {"__name__": "__main__" if main else "a module", "version_info": tuple(sys.version_info[:3]),
             "platform": sys.platform}
    have, op = known.get(last(test.left)), test.ops[0]
    if have is None or type(have) is not type(want):
        return None
    try:
        for kind, result in ((ast.Eq, have == want), (ast.NotEq, have != want), (ast.Lt, have < want),
                             (ast.LtE, have <= want), (ast.Gt, have > want), (ast.GtE, have >= want)):
            if isinstance(op, kind):
                return result
    except TypeError:
        pass
    return None


def dynamic(path):
    """Returns the names of the shared libraries that a file needs, and the directories that it names itself."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":  # of 64 bits, the least first
            return [], []
        at, (size, count) = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<HH", head, 54)
        file.seek(at)
        table = file.read(size * count)
        parts = [struct.unpack_from("<IIQQQQ", table, size * i) for i in range(count)]
        entries = []
        for kind, _, offset, _, _, length in parts:
            if kind == 2:
                file.seek(offset)
                data = file.read(min(length, 1 << 16))
                entries = list(struct.iter_unpack("<qQ", data[:len(data) // 16 * 16]))
        where = dict(entries)
        if 5 not in where:
            return [], []
        start = [where[5] - at + offset for kind, _, offset, at, _, length in parts
                 if kind == 1 and at <= where[5] < at + length][0]
        file.seek(start)
        strings = file.read(min(where.get(10, 0), 1 << 22))
    texts = [(tag, strings[value:strings.index(b"\0", value)].decode())
             for tag, value in entries if tag in (1, 15, 29)]
    here = os.path.dirname(path)
    dirs = [name.replace("${ORIGIN}", here).replace("$ORIGIN", here)
            for tag, text in texts if tag != 1 for name in text.split(":") if name]
    return [text for tag, text in texts if tag == 1], dirs


class Libraries:
    """The shared libraries that a program finds here."""

    def __init__(self):
        dirs = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", sys.base_prefix + "/lib"]
        self.known = {os.path.basename(path) for d in dirs + ["/usr/lib/*-linux-*", "/lib/*-linux-*"]
                      for path in glob.glob(d + "/*.so*")}
        for path, separator in (("/etc/ld.so.cache", b"\0"), ("/proc/self/maps", None)):
            try:
                with open(path, "rb") as file:
                    names = file.read().split(separator)
            except OSError:
                continue
            self.known.update(os.fsdecode(os.path.basename(name)) for name in names
                              if name.startswith(b"/") and os.path.exists(name))
        self.packages = None

    def missing(self, path, seen):
        """Returns the libraries that a file needs, itself or by another, and that are nowhere."""
        found = set()
        try:
            names, dirs = dynamic(path)
        except Exception:  # of a file that is not whole
            return found
        for name in names:
            if name in self.known or name in seen or "/" in name:
                continue
            seen.add(name)
            inside = [d + "/" + name for d in dirs if os.path.exists(d + "/" + name)]
            if inside:
                found |= self.missing(inside[0], seen) if len(seen) < 500 else set()
            elif name not in self.in_packages():
                found.add(name)
        return found

    def in_packages(self):
        """Returns the libraries of all packages, which may load them before others that need them."""
        if self.packages is None:
            self.packages = {name for top in sys.path if os.path.isdir(top) for _, _, names in os.walk(top)
                             for name in names if ".so" in name}
        return self.packages


def loads(path, package):
    """Returns the modules, by their whole names, that a source of a package certainly imports."""
    try:
        with open(path, "rb") as file:
            nodes = ast.parse(file.read(1 << 20)).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in nodes:  # which grows
        if isinstance(node, TRIES):
            if any(isinstance(n, ast.Raise) for handler in node.handlers for n in ast.walk(handler)):
                nodes.extend(node.body)
        elif isinstance(node, ast.If):
            value = truth(node.test, False)
            nodes.extend((node.body if value is not False else []) + (node.orelse if not value else []))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= package.count(".") + 1:
            parts = package.split(".")[:len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join(parts + ([node.module] if node.module else []))
            yield module
            yield from (module + "." + alias.name for alias in node.names)


def natives(spec, names):
    """Returns the native modules that imports of modules in a package load, as far as they are its own."""
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    if spec.origin and spec.origin.endswith(tuple(suffixes)):
        return {spec.origin}
    found, wanted = set(), [spec.name, spec.name + "." + spec.name] + names
    files = (name for top in spec.submodule_search_locations or () for _, _, names in os.walk(top) for name in names)
    if not any(name.endswith(tuple(suffixes)) for name in files):
        return found
    for name in wanted:  # which grows
        path = name.split(".")[1:]
        for top in spec.submodule_search_locations or ():
            at = "/".join([top] + path)
            native = [at + suffix for suffix in suffixes if path and os.path.exists(at + suffix)]
            found.update(native[:1])
            for source, package in ((at + "/__init__.py", name), (at + ".py", name.rpartition(".")[0])):
                if not native and os.path.exists(source):
                    wanted += [n for n in loads(source, package)
                               if n.startswith(spec.name + ".") and n not in wanted and len(wanted) < 100]
                    break
    return found


class Look:
    def __init__(self, script, files):
        self.files, self.script, self.home = files, script, script.rpartition("/")[0]
        self.dirs = {""}
        for path in files:
            while "/" in path:
                path = path.rpartition("/")[0]
                self.dirs.add(path)
        self.found, self.done, self.moved, self.native, self.unread = {}, {}, False, {}, set()
        self.follow(script, HARD)
        # A module of Python's own may import one that a file of the skill hides.
        for base in (self.home, ""):
            for name in OWN:
                at = self.own(base, name)
                if at:
                    self.follow(at, LAZY)

    def follow(self, path, kind):
        if path not in self.files or self.done.get(path, LAZY + 1) <= kind or len(self.done) > 1000:
            return
        self.done[path] = kind
        source = self.files[path]
        # Where a program adds to sys.path is not known; its modules may lie anywhere in the skill.
        self.moved = self.moved or any(word in source for word in (b"sys.path", b"addsitedir"))
        try:
            tree = ast.parse(source)
            self.body(tree.body, kind, path)
            # Any other import, such as in an odd try or a match, may name a file of the skill too.
            for node in ast.walk(tree):
                self.elsewhere(node, path)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.unread.add(path)

    def elsewhere(self, node, path):
        """Follows an import that may never run to files of the skill."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.beside(alias.name, ())
        elif isinstance(node, ast.ImportFrom) and node.level:
            self.node(node, LAZY, path)
        elif isinstance(node, ast.ImportFrom):
            self.beside(node.module, [alias.name for alias in node.names])

    def beside(self, dotted, children):
        names = dotted.split(".")
        for base in [self.home, ""] + (sorted(self.dirs) if self.moved else []):
            if self.own(base, names[0]) or join(base, names[0]) in self.dirs:
                self.chain(base, names, children, LAZY)
                return

    def own(self, base, name):
        """Returns the file of a module or regular package of the skill."""
        for path in (join(base, name) + "/__init__.py", join(base, name) + ".py"):
            if path in self.files:
                return path

    def chain(self, base, names, children, kind):
        """Follows the parts of a dotted name, and what is imported from it if these are modules."""
        for name in names:
            at = self.own(base, name)
            if at:
                self.follow(at, kind)
            base = join(base, name)
        for name in children:
            at = self.own(base, name)
            if at:
                self.follow(at, kind)

    def need(self, dotted, children, kind):
        """Reports whether a module is there."""
        names = dotted.split(".")
        top = names[0]
        if top in sys.builtin_module_names:
            return True
        for base in self.dirs if self.moved else ():  # which the program may have put before all others
            if self.own(base, top):
                self.chain(base, names, children, LAZY)
        for base in (self.home, ""):  # where a run looks before it looks elsewhere
            if self.own(base, top):
                self.chain(base, names, children, kind)
                return True
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return True
        if spec is None:
            # Directories of one name are one package, if they have no file of a regular one.
            portions = [base for base in [self.home, ""] + (sorted(self.dirs) if self.moved else [])
                        if self.own(base, top) or join(base, top) in self.dirs]
            for base in portions:
                self.chain(base, names, children, kind)
            if portions:
                return True
        if top not in OWN or spec is None:
            self.found[top] = (min(kind, self.found.get(top, (LAZY,))[0]), spec is not None)
            if spec is not None:
                below = [".".join(names[:i]) for i in range(2, len(names) + 1)]
                below += [dotted + "." + child for child in children]
                self.native.setdefault(top, set()).update(natives(spec, below))
        return spec is not None

    def body(self, nodes, kind, path):
        return all([self.node(node, kind, path) for node in nodes])

    def node(self, node, kind, path):
        """Reports whether all modules that a statement certainly imports are there."""
        if isinstance(node, ast.Import):
            return all([self.need(alias.name, (), kind) for alias in node.names])
        if isinstance(node, ast.ImportFrom):
            children = [alias.name for alias in node.names]
            if not node.level:
                return self.need(node.module, children, kind)
            base = path.rpartition("/")[0]
            for _ in range(node.level - 1):
                base = base.rpartition("/")[0]
            self.chain(base, (node.module or "").split(".") if node.module else (), children, kind)
            return True
        if isinstance(node, TRIES):
            return self.attempt(node, kind, path)
        if isinstance(node, ast.If):
            value = truth(node.test, path == self.script)
            if value is not None:
                return self.body(node.body if value else node.orelse, kind, path)
            kind = LAZY
        elif isinstance(node, FUNCTIONS + (ast.For, ast.AsyncFor, ast.While)):
            kind = LAZY
        elif not isinstance(node, (ast.ClassDef, ast.With, ast.AsyncWith)):
            return True
        there = self.body(node.body + getattr(node, "orelse", []), kind, path)
        return there or kind == LAZY

    def attempt(self, node, kind, path):
        handler = None
        for h in node.handlers:
            types = h.type.elts if isinstance(h.type, ast.Tuple) else [h.type]
            if handler is None and any(t is None or last(t) in CATCH for t in types):
                handler = h
        inner = kind
        if handler is not None:
            inside = [n for statement in handler.body for n in ast.walk(statement)]
            imports = any(isinstance(n, (ast.Import, ast.ImportFrom)) for n in inside)
            leaves = any(isinstance(n, ast.Raise) or isinstance(n, ast.Call) and last(n.func) in EXITS
                         for n in inside)
            inner = max(kind, REQUIRED if leaves and not imports else GUARDED)
        there = self.body(node.body, inner, path)
        if there:
            there = self.body(node.orelse, kind, path)
        elif handler is not None:
            there = self.body(handler.body, kind, path)
        return self.body(node.finalbody, kind, path) and there


asked = json.load(sys.stdin)
files = {path: base64.b64decode(text) for path, text in asked["files"].items()}
answers, libraries = [], None
for script in asked["scripts"]:
    look, answer = Look(script, files), []
    for name, (kind, there) in look.found.items():
        lacks = set()
        for path in look.native.get(name, ()):
            libraries = libraries or Libraries()
            lacks |= libraries.missing(path, set())
        answer.append({"name": name, "kind": KINDS[kind], "there": there, "libraries": sorted(lacks)})
    own = sorted(path for path in look.done if path != script)
    answers.append({"modules": answer, "files": own, "unread": sorted(look.unread)})
json.dump(answers, sys.stdout)
