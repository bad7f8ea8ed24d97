# Says which modules a script imports, and which of them this interpreter finds. It reads sources as data.
import sys

sys.path[:] = [p for p in sys.path if p]
import ast, base64, importlib.util, json, warnings

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


class Look:
    def __init__(self, script, files):
        self.files, self.script, self.home = files, script, script.rpartition("/")[0]
        self.dirs = {""}
        for path in files:
            while "/" in path:
                path = path.rpartition("/")[0]
                self.dirs.add(path)
        self.found, self.done, self.moved = {}, {}, False
        self.follow(script, HARD)

    def follow(self, path, kind):
        if path not in self.files or self.done.get(path, LAZY + 1) <= kind or len(self.done) > 1000:
            return
        self.done[path] = kind
        source = self.files[path]
        # Where a program adds to sys.path is not known; its modules may lie anywhere in the skill.
        self.moved = self.moved or any(word in source for word in (b"sys.path", b"addsitedir"))
        try:
            self.body(ast.parse(source).body, kind, path)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass

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
        if self.own(self.home, top):
            self.chain(self.home, names, children, kind)
            return True
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return True
        if spec is None:
            for base in [self.home] + (sorted(self.dirs) if self.moved else []):
                if self.own(base, top) or join(base, top) in self.dirs:
                    self.chain(base, names, children, kind)
                    return True
        if top not in OWN or spec is None:
            self.found[top] = (min(kind, self.found.get(top, (LAZY,))[0]), spec is not None)
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
answers = []
for script in asked["scripts"]:
    found = Look(script, files).found
    answers.append([{"name": name, "kind": KINDS[kind], "there": there}
                    for name, (kind, there) in found.items()])
json.dump(answers, sys.stdout)
