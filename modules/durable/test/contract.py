# SPDX-License-Identifier: Apache-2.0
"""Holds answers of hwtd --listen against openapi.json: whatever is not in that
file is wrong. What was answered is remembered, so that a test can ask what the
file has and nobody has seen."""

import json
import os
import re

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "../openapi.json")
KINDS = {"object": dict, "array": list, "string": str, "integer": int,
         "number": (int, float), "boolean": bool, "null": type(None)}


class Contract:
    def __init__(self):
        with open(FILE, encoding="utf-8") as file:
            self.text = json.load(file)
        self.statuses = set()  # (method, path, status)
        self.fields = set()  # (schema, property)

    def resolve(self, part):
        """What it refers to, and that one's name."""
        name = None
        while "$ref" in part:
            name = part["$ref"].rsplit("/", 1)[1]
            for step in part["$ref"].split("/")[1:]:
                at = self.text if step == "components" else at
                at = at[step]
            part = at
        return part, name

    def operations(self):
        """(method, path, what the file says of it)"""
        for path, methods in self.text["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def find(self, method, path):
        for each, pattern, operation in self.operations():
            fits = re.sub(r"\\{\w+\\}", "[^/]*", re.escape(pattern))
            if each == method and re.fullmatch(fits, path):
                return pattern, operation
        return None, None

    def answer(self, method, path, answer):
        """Raises AssertionError if the answer is not as it should be."""
        pattern, operation = self.find(method, path.split("?")[0])
        if pattern is None:
            return
        what = f"{method} {pattern}: {answer.status}"
        said = operation["responses"].get(str(answer.status))
        assert said, f"{what} is not documented: {answer.body}"
        self.statuses.add((method, pattern, str(answer.status)))
        content = self.resolve(said)[0]["content"]
        kind = answer.headers["Content-Type"]
        assert kind in content, f"{what}: {kind}"
        if answer.body:  # not after HEAD
            wrong = self.value(content[kind]["schema"], answer.json)
            assert not wrong, f"{what}: {wrong}: {answer.body}"

    def value(self, schema, value, where="the body"):
        """What is wrong with it, or None."""
        schema, name = self.resolve(schema)
        if "oneOf" in schema:
            wrong = [self.value(each, value, where)
                     for each in schema["oneOf"]]
            return None if wrong.count(None) == 1 else f"not one: {wrong}"
        kinds = schema["type"]
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if not any(isinstance(value, KINDS[kind]) for kind in kinds) or \
                isinstance(value, bool) and "boolean" not in kinds:
            return f"{where} is no {kinds}"
        if value not in schema.get("enum", [value]):
            return f"{where} is none of {schema['enum']}"
        if isinstance(value, list):
            return next(filter(None, (
                self.value(schema["items"], each, where)
                for each in value)), None)
        if isinstance(value, dict):
            return self.members(schema, name or where, value)
        return None

    def members(self, schema, name, value):
        missing = set(schema.get("required", [])) - set(value)
        more = set(value) - set(schema["properties"])
        if missing or more:
            return f"{name}: missing {missing}, not documented {more}"
        for key, each in value.items():
            wrong = self.value(schema["properties"][key], each, key)
            if wrong:
                return f"{name}: {wrong}"
            self.fields.add((name, key))
        return None

    def unseen(self):
        """What no answer had."""
        statuses = {(method, path, status)
                    for method, path, operation in self.operations()
                    for status in operation["responses"]}
        asked = {self.resolve(content["schema"])[1]
                 for _, _, operation in self.operations()
                 for content in operation.get("requestBody", {}).get(
                     "content", {}).values()} | {"NewTask", "Time"}
        fields = {(name, key)
                  for name, schema in self.text["components"]["schemas"].items()
                  if name not in asked for key in schema["properties"]}
        return statuses - self.statuses, fields - self.fields


CONTRACT = Contract()
