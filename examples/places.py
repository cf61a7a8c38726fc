# SPDX-License-Identifier: Apache-2.0
"""What the scripts share that put calls into other programs' sources: they find
places by the names of functions, fields and macros. If one is not there, they
change nothing and say which."""

import pathlib
import re
import sys


class Missing(Exception):
    pass


class File:
    """A file of the tree, or the part of it that is one function."""

    def __init__(self, tree, name):
        self.path = tree / name
        if not self.path.is_file():
            raise Missing(f"the file {name}")
        self.text = self.path.read_text()

    def missing(self, what):
        raise Missing(f"{self.path.name}: {what}")

    def function(self, name):
        """From its type to the brace in the first column."""
        found = re.search(
            r"^[A-Za-z][^;{}#]*\b" + name + r"\s*\([^;{}]*\)\s*\{.*?^\}\n",
            self.text, re.MULTILINE | re.DOTALL)
        return found or self.missing(f"the function {name}")

    def cut(self, pattern, what, flags=re.MULTILINE):
        """Takes out the lines that the pattern matches."""
        self.text, count = re.subn(pattern, "", self.text, flags=flags)
        if not count:
            self.missing(what)

    def cut_function(self, name):
        found = self.function(name)
        self.text = self.text[:found.start()] + self.text[found.end():]

    def insert(self, pattern, addition, what, inside=None):
        """Puts lines after the first match; its groups may be used. inside: in
        that function only."""
        start, end = 0, len(self.text)
        if inside:
            start, end = self.function(inside).span()
        part, count = re.subn(
            pattern, lambda found: found.group() + found.expand(addition),
            self.text[start:end], count=1, flags=re.MULTILINE)
        if not count:
            self.missing(what + (f" in {inside}" if inside else ""))
        self.text = self.text[:start] + part + self.text[end:]

    def substitute(self, pattern, replacement, what, inside=None):
        """Replaces each match. inside: in that function only."""
        start, end = 0, len(self.text)
        if inside:
            start, end = self.function(inside).span()
        part, count = re.subn(pattern, replacement, self.text[start:end],
                              flags=re.MULTILINE)
        if not count:
            self.missing(what + (f" in {inside}" if inside else ""))
        self.text = self.text[:start] + part + self.text[end:]

    def append(self, addition):
        self.text += addition


def edit_tree(tree, edits):
    """edits: for each file's name, a function that gets a File."""
    edited = []
    try:
        for name, edit in edits.items():
            file = File(tree, name)
            edit(file)
            edited.append(file)
    except Missing as missing:
        sys.exit(f"edit: not found in {tree}: {missing}")
    for file in edited:
        file.path.write_text(file.text)
