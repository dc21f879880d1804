"""The rules of the house that a program can check. A rule takes {path: text} and yields "path:line: what is wrong".

Each rule stands with a control: a small tree that it must complain about, and one that it must accept (see controls.py).
"""
import re

CODE = ("config", "engines", "protocols", "daemon")
CXX = (".h", ".cc")
MAY_INCLUDE = {
    "config": {"config"},
    "engines": {"engines"},
    "protocols": {"protocols", "engines"},
    "daemon": {"daemon", "protocols", "engines", "config"},
}
# header -> where it may be included, as a pattern over paths
THIRD_PARTY = [
    (r"yaml-cpp/", r"config/yaml_"),
    (r"re2/", r"config/path_regex\.cc"),
    (r"liburing|linux/io_uring\.h", r"engines/uring_"),
    (r"nghttp2/", r"protocols/h2/"),
    (r"nghttp3/|ngtcp2/", r"protocols/h3/"),
    (r"openssl/", r"protocols/transport/tls_|protocols/h3/quic_crypto"),
    (r"zlib\.h|brotli/|zstd", r"protocols/coding/"),
    (r"spdlog/|fmt/", r"daemon/log"),
    (r"CLI/", r"daemon/main\.cc"),
]
SYSTEM_FOLDERS = {"sys", "linux", "netinet", "arpa", "net", "bits", "asm"}
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 132           # the aim is 120
CONTRACT_LINES_MAX = 12
DATA_PATH = r"^(engines|protocols)/"
ALL_CODE = r"^(config|engines|protocols|daemon)/"
# (name, what, where it is banned, where it may stand all the same, why)
BANNED = [
    ("shared ownership", r"\bshared_ptr\b", DATA_PATH, None, "an object has one owner"),
    ("std::function", r"\bstd::function\b", DATA_PATH, r"^engines/sim_", "it allocates; use a function pointer and a base object"),
    ("exceptions", r"\bthrow\b|\bcatch\s*\(", r"^(engines|protocols|daemon)/",
     r"^daemon/main\.cc$|^engines/(slab|mailbox)\.cc$",  # reserving the pool and the wake descriptor: start-up
     "errors are std::expected<T, Fault>; exceptions stay in config/ and the start-up"),
    ("printing", r"\b(printf|fprintf|puts|fputs)\s*\(|\bstd::(cout|cerr|clog)\b", r"^(engines|protocols)/", r"^engines/check\.cc$",
     "the data path never prints"),
    ("threads", r"\bstd::(jthread|thread)\b(?!::)|\bpthread_create\b", ALL_CODE, r"^daemon/(supervisor|worker|signals|access_log|log)\.",
     "a worker is the only thread; blocking work has its helper"),
    ("closing", r"(?<![\w:])::close\s*\(|(?<![\w.>:~])close\s*\(\s*\w*fd\w*\s*\)", r"^(config|protocols|daemon)/",
     r"^daemon/(bind|notify|signals|access_log|admin_client)\.",  # a file, or sockets that never carried an op
     "descriptors are closed by engines/, when nothing on them is in flight"),
    ("raw socket calls", r"(?<![\w:])::(send|recv|sendmsg|recvmsg|accept4?|connect|epoll_\w+|splice)\s*\(",
     r"^(config|protocols|daemon)/", None, "bytes move through ops"),
    ("clocks and chance", r"_clock::now\b|\bclock_gettime\s*\(|\brandom_device\b|\bgetrandom\s*\(|\bs?rand\s*\(|\btime\s*\(\s*(nullptr|NULL|0)\s*\)",
     DATA_PATH, r"^engines/clock\.|^protocols/exchange/exchange\.cc$",  # the Date field needs the wall clock
     "time comes from the loop, chance from a seed, so that a run can be repeated"),
    ("SQPOLL", r"IORING_SETUP_SQPOLL", ALL_CODE, None, "never used (E5)"),
    ("unfinished work", r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b", r"", None, "finish it or file an issue"),
]


def folder(path):
    return path.split("/", 1)[0]


def is_cxx(path):
    return path.endswith(CXX)


def code_files(tree):
    return ((p, t) for p, t in sorted(tree.items()) if is_cxx(p) and folder(p) in CODE)


def blank(text):
    """Comments and literals become blanks; lines stay where they are."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def at(text, offset):
    return text.count("\n", 0, offset) + 1


def include_direction(tree):
    for path, text in code_files(tree):
        for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.M):
            if folder(m[1]) not in MAY_INCLUDE[folder(path)]:
                yield f"{path}:{at(text, m.start())}: {folder(path)} may not include {m[1]} (write paths from the root)"


def third_party(tree):
    for path, text in code_files(tree):
        for m in re.finditer(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", text, re.M):
            line = f"{path}:{at(text, m.start())}"
            for header, place in THIRD_PARTY:
                if re.match(header, m[1]):
                    if not re.match(place, path):
                        yield f"{line}: {m[1]} is included from {place} only"
                    break
            else:
                if "/" in m[1] and folder(m[1]) not in SYSTEM_FOLDERS:
                    yield f"{line}: {m[1]} has no place in this table yet"


def file_length(tree):
    for path, text in sorted(tree.items()):
        lines = text.count("\n")
        if lines > FILE_LINES_MAX and (is_cxx(path) or path.endswith(".py") or "." not in path.rsplit("/", 1)[-1]):
            yield f"{path}:{lines}: longer than {FILE_LINES_MAX} lines"


def functions(text):
    """(first line, lines) of each outermost function body in blanked text."""
    stack, start = [], 0
    for m in re.finditer(r"[{};]", text):
        if m[0] == ";":
            start = m.end() if not stack or stack[-1][0] != "function" else start
            continue
        if m[0] == "{":
            head = re.sub(r"^\s*#.*$", "", text[start:m.start()], flags=re.M).strip()
            inside = any(kind == "function" for kind, _ in stack)
            scope = re.search(r"\b(namespace|class|struct|enum|union|extern)\b", head) and not re.search(r"\)\s*[\w\s&:>-]*$", head)
            kind = "function" if not inside and not scope and ")" in head and not head.endswith("=") else "other"
            stack.append((kind, at(text, m.start())))
        elif stack:
            kind, first = stack.pop()
            if kind == "function":
                yield first, at(text, m.start()) - first + 1
        start = m.end()


def function_length(tree):
    for path, text in code_files(tree):
        for first, lines in functions(blank(text)):
            if lines > FUNCTION_LINES_MAX:
                yield f"{path}:{first}: a function of {lines} lines, more than {FUNCTION_LINES_MAX}"


def columns(tree):
    for path, text in code_files(tree):  # not tests: a table of bytes may be wide
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > COLUMNS_MAX:
                yield f"{path}:{number}: {len(line)} columns, more than {COLUMNS_MAX}"


def banned(tree):
    for path, text in sorted(tree.items()):
        if not is_cxx(path):
            continue
        bare = blank(text)
        for name, what, where, but, why in BANNED:
            if not re.match(where, path) or (but and re.match(but, path)):
                continue
            for m in re.finditer(what, text if name == "unfinished work" else bare):
                yield f"{path}:{at(text, m.start())}: {name}: {m[0].strip()}: {why}"


def header_contract(tree):
    for path, text in code_files(tree):
        if not path.endswith(".h"):
            continue
        lines = text.split("\n")
        comment = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
        if comment == 0:
            yield f"{path}:1: a header opens with its contract: what it is, whose, on which thread, what it never does"
        elif comment > CONTRACT_LINES_MAX:
            yield f"{path}:{comment}: the contract has {comment} lines, more than {CONTRACT_LINES_MAX}"
        if "#pragma once" not in lines[comment:comment + 2]:
            yield f"{path}:{comment + 1}: #pragma once follows the contract"


def readme(tree):
    for place in sorted({p.rsplit("/", 1)[0] for p, _ in code_files(tree)}):
        if f"{place}/README.md" not in tree:
            yield f"{place}/README.md:1: missing: what lives here, who calls it, what it must never do"


def listed(tree):
    for path in sorted(tree):
        if path.endswith(".cc") and folder(path) in CODE + ("tests",):
            place, name = path.rsplit("/", 1)
            in_meson = f"'{name}'" in tree.get(f"{place}/meson.build", "")
            if not in_meson and name not in tree.get(f"{place}/run.sh", "") and path != "daemon/main.cc":
                yield f"{path}:1: is not in {place}/meson.build, so nothing builds it"


# ---- docs/requirements.md: | id | promise | shown by |
IDS = {"E": 13, "A": 11, "H": 10, "P": 16, "Q": 9, "W": 11, "T": 5, "C": 5, "M": 7, "U": 2, "O": 3, "X": 4}
TABLE = "docs/requirements.md"
TAG = r"\[([A-Z]\d{1,2})\]"


def requirement_rows(tree):
    return {m[1]: (number, m[2], m[3]) for number, line in enumerate(tree.get(TABLE, "").split("\n"), 1)
            if (m := re.match(r"\| ([A-Z]\d+)(?: ★)? \| (.+) \| (.*?) ?\|$", line))}


def shown_in_tests(tree):
    """id -> where: the first Catch2 case with that tag; and the same of the end-to-end cases."""
    tags, e2e = {}, {}
    for path, text in sorted(tree.items()):
        if path.startswith("tests/") and path.endswith(".cc"):
            for m in re.finditer(r'"((?:\[[^\]"]+\])+)"', text):
                for tag in re.findall(TAG, m[1]):
                    tags.setdefault(tag, f"{path}:{at(text, m.start())}")
        elif path.startswith("tests/e2e/") and path.endswith(".py"):
            for m in re.finditer(r"^@case\((.*)\)", text, re.M):
                for name in re.findall(r'"([A-Z]\d{1,2})"', m[1]):
                    e2e.setdefault(name, f"{path}:{at(text, m.start())}")
    return tags, e2e


def requirements(tree):
    rows = requirement_rows(tree)
    for letter, count in IDS.items():
        for n in range(1, count + 1):
            if f"{letter}{n}" not in rows:
                yield f"{TABLE}:1: {letter}{n} is missing"
    tags, e2e = shown_in_tests(tree)
    for found, word in ((tags, "test [{}]"), (e2e, "e2e")):
        for name, where in found.items():
            if name not in rows:
                yield f"{where}: {name} is no row of {TABLE}"
            elif word.format(name) not in rows[name][2]:
                yield f"{where}: shows {name}, but {TABLE}:{rows[name][0]} does not say so"
    for name, (number, _, shown) in rows.items():
        if not shown.strip():
            yield f"{TABLE}:{number}: {name} is shown by nothing"
        for tag in re.findall(TAG, shown):
            if tag not in tags:
                yield f"{TABLE}:{number}: no test has the tag [{tag}]"
        if re.search(r"\be2e\b", shown) and name not in e2e:
            yield f"{TABLE}:{number}: no case in tests/e2e names {name}"


def updated_requirements(tree):
    """The table with what the tests show written into its last column; the rest of the column stays."""
    tags, e2e = shown_in_tests(tree)

    def row(m):
        name, rest = m[2], [p for p in m[4].split("; ") if p and not re.fullmatch(r"test \[\w+\]|e2e", p)]
        own = [f"test [{name}]"] * (name in tags) + ["e2e"] * (name in e2e)
        return f"{m[1]}{m[3]}{'; '.join(own + rest)} |"
    return re.sub(r"^(\| ([A-Z]\d+))((?: ★)? \| .+ \| )(.*?) ?\|$", row, tree[TABLE], flags=re.M)


RULES = [include_direction, third_party, file_length, function_length, columns, banned, header_contract, readme, listed,
         requirements]
