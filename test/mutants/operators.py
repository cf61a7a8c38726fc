# SPDX-License-Identifier: Apache-2.0
"""Derives deliberate faults from C sources, by operators:

    relation      < and <=, > and >=, == and != change places
    logic         && and || change places
    true, false   a condition of if is forced, after it has been evaluated;
                  that of a loop is forced to be false
    negate        a condition of a loop that has no operator of the first two
    plus, minus   a number beside + - % < <= > >= changes by one
    delete        a call, an assignment or a step by one is left out
    return        bool: the contrary, of what has no operator of the first two;
                  int: 0 for an error, an error for 0
    jump          break, continue, goto or a return of no value is left out
    order         an atomic operation of a weaker order, as atomic.h has it

derive(FILES, ATOMICS) yields Fault after Fault. Its name is FILE:FUNCTION:
OPERATOR:ORDINAL, counted in the function, so that an edit elsewhere does not
rename it. Line numbers stay as they are. What is in assert is no code.

The sources are formatted by clang-format and use no macro that hides a brace;
that is what reading them as tokens relies on.
"""
import collections
import re

Fault = collections.namedtuple("Fault", "name file at length new line old")

TOKEN = re.compile(
    r"""(?P<skip>\s+|/\*.*?\*/|//[^\n]*|^[ \t]*\#(?:\\\n|[^\n])*)
    |(?P<word>[A-Za-z_]\w*)|(?P<number>\d\w*)
    |"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'
    |<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.""",
    re.S | re.M | re.X)
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
         "&&": "||", "||": "&&"}
RELATIONS = {"<", "<=", ">", ">=", "==", "!="}
BESIDE = {"+", "-", "%", "<", "<=", ">", ">="}
CHANGES = {"(", "=", "->", ".", "[", "++", "--", "+=", "-=", "*=", "/=", "%=",
           "|=", "&=", "^=", "<<=", ">>="}
CLOSES = {"(": ")", "[": "]", "{": "}"}
# What no test could miss: they change how fast the code is, check it, or are
# for those who look on (test/check/observed).
NO_CODE = {"assert", "static_assert", "_Static_assert", "__builtin_prefetch",
           "PROBE", "walk_prefetch", "tsan_release", "tsan_acquire"}
WEAKER = {"acquire": ("relaxed",), "release": ("relaxed",),
          "seq": ("relaxed", "acquire", "release")}
ORDERED = re.compile("(.*)_(%s)$" % "|".join(WEAKER))
ERROR = "-22 /* EINVAL */"


class Source:
    """The tokens of a file, and where each bracket closes."""

    def __init__(self, path):
        self.path = path
        with open(path) as file:
            self.text = file.read()
        self.tokens = [(m.group(), m.start(), m.lastgroup)
                       for m in TOKEN.finditer(self.text)
                       if m.lastgroup != "skip"]
        self.word = [token for token, _, _ in self.tokens] + [""]
        self.close = {}
        opened = []
        for i, word in enumerate(self.word):
            if word in CLOSES:
                opened.append(i)
            elif opened and word == CLOSES[self.word[opened[-1]]]:
                self.close[opened.pop()] = i

    def functions(self):
        """Name, words of its type, first and last token of its body."""
        i = declared = 0
        while i < len(self.tokens):
            word = self.word[i]
            if word == "{" and self.word[i - 1] == ")":
                first = next(k for k, end in self.close.items() if end == i - 1)
                yield (self.word[first - 1], self.word[declared:first - 1],
                       i, self.close[i])
            if word in CLOSES:
                i = self.close[i]
            if self.word[i] in ("}", ";"):
                declared = i + 1
            i += 1


class Function:
    """Collects the faults of one function, in the order of the source."""

    def __init__(self, source, counts, atomics, function):
        self.source, self.counts, self.atomics = source, counts, atomics
        self.name, self.type, self.first, self.last = function
        self.word, self.close = source.word, source.close
        self.faults = []

    def add(self, operator, first, last, new):
        """Puts new in the place of the tokens from first to last."""
        source = self.source
        at = source.tokens[first][1]
        end = source.tokens[last][1] + len(self.word[last])
        old = source.text[at:end]
        new += "\n" * (old.count("\n") - new.count("\n"))
        key = (self.name, operator)
        self.counts[key] += 1
        name = f"{source.path}:{self.name}:{operator}:{self.counts[key]}"
        line = source.text.count("\n", 0, at) + 1
        self.faults.append(Fault(name, source.path, at, end - at, new, line,
                                 " ".join(old.split())))

    def text(self, first, last):
        end = self.source.tokens[last][1] + len(self.word[last])
        return self.source.text[self.source.tokens[first][1]:end]

    def derive(self):
        if self.name in NO_CODE:
            return []
        self.statements()
        i = self.first
        while i < self.last:
            if self.word[i] in NO_CODE:
                i = self.close[i + 1]
            self.token(i)
            i += 1
        return self.faults

    def token(self, i):
        word, before, after = self.word[i], self.word[i - 1], self.word[i + 1]
        if word in OTHER:
            self.add("relation" if word in RELATIONS else "logic", i, i,
                     OTHER[word])
        if self.source.tokens[i][2] == "number" and (
                before in BESIDE or after in BESIDE) and not (
                before == "-" and self.word[i - 2] in ("(", ",", "=",
                                                       "return")):
            self.add("plus", i, i, f"({word} + 1)")
            if int(word.rstrip("uUlL"), 0) > 0:
                self.add("minus", i, i, f"({word} - 1)")
        ordered = ORDERED.match(word)
        if ordered and word in self.atomics:
            for order in WEAKER[ordered[2]]:
                weaker = f"{ordered[1]}_{order}"
                if weaker in self.atomics:
                    self.add("order", i, i, weaker)

    def statements(self):
        i = self.first + 1
        while i < self.last:
            word = self.word[i]
            if word in ("if", "while", "for", "switch"):
                end = self.close[i + 1]
                if word != "switch":
                    self.condition(word, i + 2, end - 1)
                i = end + 1
            elif word in ("else", "do", "{", "}", ";"):
                i += 1
            elif word in ("case", "default") or self.word[i + 1] == ":":
                i = self.end(i, ":") + 1
            else:
                end = self.end(i, ";")
                self.statement(i, end)
                i = end + 1

    def end(self, i, mark):
        while self.word[i] != mark:
            i = self.close.get(i, i) + 1
        return i

    def condition(self, kind, first, last):
        if kind == "for":
            first = self.end(first, ";") + 1
            last = self.end(first, ";") - 1
        if first > last:
            return
        text = self.text(first, last)
        if kind == "if":
            self.add("true", first, last, f"({text}) || 1")
        elif self.is_plain(first, last):
            self.add("negate", first, last, f"!({text})")
        self.add("false", first, last, f"({text}) && 0")

    def is_plain(self, first, last):
        return not OTHER.keys() & set(self.word[first:last + 1])

    def statement(self, first, end):
        word, after = self.word[first], self.word[first + 1]
        if word in ("break", "continue", "goto") or (
                word == "return" and after == ";"):
            self.add("jump", first, end, ";")
        elif word == "return":
            self.returned(first + 1, end - 1)
        elif word in NO_CODE:
            return
        elif word in ("(", "*", "++", "--") or (
                self.source.tokens[first][2] == "word" and after in CHANGES):
            self.add("delete", first, end, ";")

    def returned(self, first, last):
        text = self.text(first, last)
        if "*" in self.type:
            return
        if "bool" in self.type and self.is_plain(first, last):
            self.add("return", first, last, f"!({text})")
        elif "int" in self.type:
            new = ERROR if text == "0" else f"(({text}), 0)"
            self.add("return", first, last, new)


def derive(files, atomics):
    with open(atomics) as file:
        atomics = set(re.findall(r"^(a\w+|pair_\w+)\(", file.read(), re.M))
    for path in files:
        source = Source(path)
        counts = collections.Counter()
        for function in source.functions():
            yield from Function(source, counts, atomics, function).derive()
