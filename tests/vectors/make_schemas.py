#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_schemas.py - writes schemas.json: JSON schemas in the shapes that zod 3 and 4, pydantic 2,
TypeBox and tools of MCP servers document, with texts that fit and texts that do not. Each text is
checked against the package jsonschema (draft 2020-12, or 7 where "items" is a list), except where
the schema says something that a validator takes for an annotation (format, nullable).

usage: make_schemas.py > schemas.json"""
import json
import sys

import jsonschema

CASES = []
SAFE = 9007199254740991
DRAFT4 = "http://json-schema.org/draft-04/schema#"
DRAFT7 = "http://json-schema.org/draft-07/schema#"
DRAFT2020 = "https://json-schema.org/draft/2020-12/schema"


def case(name, schema, yes, no, by=None):
    """by: what a validator does not check, so that `no` is not put to it, or, for null, names and
    look, does not know at all"""
    CASES.append({"name": name, "schema": schema, "yes": yes, "no": no, "by": by})


def zod4(props, **more):
    return {"$schema": DRAFT2020, "type": "object", "properties": props,
            "required": list(props), "additionalProperties": False, **more}


def zod3(props, **more):
    return {"$schema": DRAFT7, "type": "object", "properties": props, "required": list(props),
            "additionalProperties": False, **more}


def pydantic(title, props, required=None, **more):
    for key, p in props.items():
        p.setdefault("title", key.title())
    return {"title": title, "type": "object", "properties": props,
            "required": list(props) if required is None else required, **more}


def one(schema, yes, no, wrap=zod4):
    """A schema of one property a, with values"""
    return (wrap({"a": schema}), [json.dumps({"a": v}, ensure_ascii=False) for v in yes],
            [json.dumps({"a": v}, ensure_ascii=False) for v in no])


# ---- zod 4 ----
case("zod4 int", *one({"type": "integer", "minimum": -SAFE, "maximum": SAFE},
                      [0, -5, SAFE, -SAFE], [SAFE + 1, -SAFE - 1, 0.5, "1"]))
case("zod4 int positive", *one({"type": "integer", "exclusiveMinimum": 0, "maximum": SAFE},
                               [1, 42, SAFE], [0, -1, SAFE + 2]))
case("zod4 int32", *one({"type": "integer", "minimum": -2147483648, "maximum": 2147483647},
                        [2147483647, -2147483648], [2147483648, -2147483649]))
case("zod4 float64", *one({"type": "number", "minimum": -1.7976931348623157e308,
                           "maximum": 1.7976931348623157e308}, [0, 1.5, -1e3 * 7.25], ["1", None]))
case("zod4 number range", *one({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                               [0.5, 0.001, 0.999], [0, 1, -0.5, 1.5]))
case("zod4 email", *one(
    {"type": "string", "format": "email",
     "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@"
                r"([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"},
    ["a@b.co", "first.last+tag@mail.example.org"], ["a@b", "a..b@c.de", ".a@b.co", "a b@c.de", ""]))
case("zod4 uuid", *one(
    {"type": "string", "format": "uuid",
     "pattern": "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-"
                "[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|"
                "ffffffff-ffff-ffff-ffff-ffffffffffff)$"},
    ["123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000"],
    ["123e4567-e89b-92d3-a456-426614174000", "123e4567"]))
case("zod4 url", *one({"type": "string", "format": "uri"},
                      ["https://example.com/a?b=c#d", "mailto:a@b.de"], ["no url", "", "http://"]),
     by="format")
case("zod4 iso datetime", *one(
    {"type": "string", "format": "date-time",
     "pattern": r"^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|"
                r"[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|"
                r"(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))T"
                r"(?:(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z))$"},
    ["2024-02-29T12:00:00Z", "2023-12-31T23:59:59.5Z"],
    ["2023-02-29T12:00:00Z", "2023-12-31T23:59:59+01:00", "2023-12-31", "2023-13-01T00:00:00Z"]))
case("zod4 iso date", *one(
    {"type": "string", "format": "date",
     "pattern": r"^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|"
                r"[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|"
                r"(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))$"},
    ["2024-02-29", "1999-12-31"], ["2023-02-29", "1999-1-1", ""]))
case("zod4 iso duration", *one(
    {"type": "string", "format": "duration",
     "pattern": r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?"
                r"(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$"},
    ["P3W", "P1Y2M3DT4H5M6S", "PT0.5S", "P1D"], ["P", "PT", "P1W2D", "1D"]))
case("zod4 ipv4", *one({"type": "string", "format": "ipv4"}, ["1.2.3.4", "255.255.255.255"],
                       ["1.2.3", "256.1.1.1"]), by="format")
case("zod4 ipv6", *one({"type": "string", "format": "ipv6"},
                       ["::1", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8"],
                       ["1:2", ":::", "1:2:3:4:5:6:7:8:9"]), by="format")
case("zod4 base64", *one({"type": "string", "format": "base64", "contentEncoding": "base64",
                          "pattern": r"^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|"
                                     r"(?:[0-9a-zA-Z+/]{3}=))?$"},
                         ["", "QUJD", "QUI=", "QQ=="], ["QUJ", "QUJD=", "?"]))
case("zod4 regex length", *one({"type": "string", "minLength": 2, "maxLength": 5,
                                "pattern": "^[a-z]+$"}, ["ab", "abcde"], ["a", "abcdef", "aB"]))
case("zod4 startsWith", *one({"type": "string", "pattern": "^https://.*", "minLength": 10},
                             ["https://ab", "https://abc.de"], ["https://", "http://abcdef"]))
case("zod4 includes endsWith", *one({"type": "string", "allOf": [{"pattern": "x"},
                                                                 {"pattern": ".*z$"}]},
                                    ["xz", "axbz", "zxz"], ["x", "z", "zx"]))
case("zod4 nullable", *one({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["x", None], [1]))
case("zod4 optional", {"$schema": DRAFT2020, "type": "object",
                       "properties": {"a": {"type": "string"}, "b": {"type": "number"}},
                       "required": ["a"], "additionalProperties": False},
     ['{"a":"x"}', '{"a":"x","b":1}'], ['{"b":1}', '{"a":"x","c":1}'])
case("zod4 default", *one({"default": 3, "type": "number"}, [3, 1.5], ["3"]))
case("zod4 enum", *one({"type": "string", "enum": ["red", "green"]}, ["red"], ["blue", ""]))
case("zod4 literal", *one({"type": "number", "const": 5}, [5], [4, "5"]))
case("zod4 literals", *one({"type": "string", "enum": ["a\"b", "ü"]}, ["a\"b", "ü"], ["a", "u"]))
case("zod4 array", *one({"type": "array", "minItems": 1, "maxItems": 3,
                         "items": {"type": "string"}}, [["a"], ["a", "b", "c"]],
                        [[], ["a"] * 4, [1]]))
case("zod4 tuple", *one({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}],
                         "items": False, "minItems": 2},
                        [["a", 1]], [["a"], ["a", 1, 2], [1, "a"]]))
case("zod4 tuple rest", *one({"type": "array", "prefixItems": [{"type": "string"}],
                              "items": {"type": "boolean"}}, [["a"], ["a", True, False]],
                             [["a", 1], [True]]))
case("zod4 record", *one({"type": "object", "propertyNames": {"type": "string"},
                          "additionalProperties": {"type": "number"}},
                         [{}, {"x": 1, "y": 2.5}], [{"x": "1"}, []]))
case("zod4 record enum", *one({"type": "object",
                               "propertyNames": {"type": "string", "enum": ["l", "r"]},
                               "additionalProperties": {"type": "integer"},
                               "required": ["l", "r"]},
                              [{"l": 1, "r": 2}], [{"l": 1}, {"l": 1, "r": 2, "x": 3}, {"l": "1"}]))
case("zod4 record regex", *one({"type": "object",
                                "propertyNames": {"type": "string", "pattern": "^[a-z]{2,4}$"},
                                "additionalProperties": {"type": "string"}},
                               [{}, {"ab": "x", "abcd": "y"}], [{"a": "x"}, {"abcde": "x"}]))
case("zod4 discriminated union", *one(
    {"oneOf": [{"type": "object", "properties": {"kind": {"type": "string", "const": "a"},
                                                 "x": {"type": "number"}},
                "required": ["kind", "x"], "additionalProperties": False},
               {"type": "object", "properties": {"kind": {"type": "string", "const": "b"}},
                "required": ["kind"], "additionalProperties": False}]},
    [{"kind": "a", "x": 1}, {"kind": "b"}], [{"kind": "a"}, {"kind": "b", "x": 1}, {"kind": "c"}]))
case("zod4 intersection", {"allOf": [
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    {"type": "object", "properties": {"b": {"type": "number"}}, "required": ["b"]}]},
     ['{"a":"x","b":1}'], ['{"a":"x"}', '{"b":1}', '{"a":1,"b":1}'])
case("zod4 recursive", {"$schema": DRAFT2020, "type": "object", "properties": {
    "name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name", "kids"], "additionalProperties": False},
     ['{"name":"a","kids":[{"name":"b","kids":[]}]}'], ['{"name":"a","kids":[1]}', '{"name":"a"}'])
case("zod4 reused", {"$schema": DRAFT2020, "type": "object", "properties": {
    "from": {"$ref": "#/$defs/__schema0"}, "to": {"$ref": "#/$defs/__schema0"}},
    "required": ["from", "to"], "additionalProperties": False,
    "$defs": {"__schema0": {"type": "object", "properties": {"x": {"type": "number"}},
                            "required": ["x"], "additionalProperties": False}}},
     ['{"from":{"x":1},"to":{"x":2}}'], ['{"from":{"x":1},"to":{}}', '{"from":1,"to":{"x":2}}'])
case("zod4 loose", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                    "additionalProperties": {}}, ['{"a":"x"}', '{"a":"x","q":[1]}'], ['{"q":1}'])
case("zod4 any unknown", zod4({"a": {}, "b": True}), ['{"a":1,"b":[null]}'], ['{"a":1}'])
case("zod4 never", {"type": "object", "properties": {"a": {"not": {}}, "b": {"type": "string"}},
                    "required": ["b"], "additionalProperties": False},
     ['{"b":"x"}'], ['{"a":1,"b":"x"}'])
case("zod4 multipleOf", *one({"type": "number", "multipleOf": 0.25}, [0.25, 7.5, 3, -0.75],
                             [0.1, 1.3]))
case("zod4 step int", *one({"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 5},
                           [0, 5, 100, 95], [1, 99, 105, -5]))
case("zod4 meta", *one({"id": "x", "title": "T", "description": "d", "deprecated": True,
                        "examples": ["q"], "type": "string"}, ["q"], [1]))
case("zod4 file", *one({"type": "string", "format": "binary", "contentEncoding": "binary"},
                       ["abc"], [1]))
case("zod4 emoji", *one({"type": "string", "minLength": 1, "maxLength": 3}, ["😀", "a😀é"],
                        ["", "abcd"]))

# ---- zod 3 (zod-to-json-schema) ----
case("zod3 tuple", *one({"type": "array", "minItems": 2, "maxItems": 2,
                         "items": [{"type": "string"}, {"type": "integer"}]},
                        [["a", 1]], [["a"], ["a", 1, 1], ["a", "b"]], zod3))
case("zod3 tuple rest", *one({"type": "array", "minItems": 1, "items": [{"type": "string"}],
                              "additionalItems": {"type": "boolean"}},
                             [["a"], ["a", True]], [[], ["a", "b"]], zod3))
case("zod3 nullable", *one({"type": ["string", "null"]}, ["x", None], [1], zod3))
case("zod3 openapi nullable", *one({"type": "string", "nullable": True}, ["x", None], [1], zod3),
     by="nullable")
case("zod3 openapi nullable ref", {
    "type": "object", "properties": {"a": {"allOf": [{"$ref": "#/definitions/A"}],
                                           "nullable": True}},
    "required": ["a"], "definitions": {"A": {"type": "integer"}}},
     ['{"a":1}', '{"a":null}'], ['{"a":"x"}'], by="nullable")
case("zod3 openapi exclusive", *one({"type": "number", "minimum": 0, "exclusiveMinimum": True},
                                    [0.5, 3], [0, -1], lambda p: {**zod3(p), "$schema": DRAFT4}))
case("zod3 union types", *one({"type": ["string", "number", "boolean"]}, ["x", 1.5, True],
                              [None, []], zod3))
case("zod3 strict union", *one({"anyOf": [{"type": "string", "format": "uuid"},
                                          {"type": "integer"}]},
                               ["123e4567-e89b-12d3-a456-426614174000", 3], ["x", 1.5], zod3),
     by="format")
case("zod3 ref path", {"$schema": DRAFT7, "type": "object", "properties": {
    "a": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"],
          "additionalProperties": False},
    "b": {"$ref": "#/properties/a"}}, "required": ["a", "b"], "additionalProperties": False},
     ['{"a":{"x":1},"b":{"x":2}}'], ['{"a":{"x":1},"b":{}}'])
case("zod3 definitions", {"$ref": "#/definitions/Plan", "definitions": {"Plan": {
    "type": "object", "properties": {"steps": {"type": "array", "items": {
        "$ref": "#/definitions/Plan"}}}, "additionalProperties": False}}, "$schema": DRAFT7},
     ['{}', '{"steps":[{},{"steps":[]}]}'], ['{"steps":[1]}', '{"x":1}'])
case("zod3 map", *one({"type": "array", "maxItems": 125, "items": {
    "type": "array", "items": [{"type": "string"}, {"type": "number"}], "minItems": 2,
    "maxItems": 2}}, [[], [["a", 1], ["b", 2]]], [[["a"]], [1]], zod3))
case("zod3 set", *one({"type": "array", "uniqueItems": True,
                       "items": {"type": "string", "enum": ["a", "b", "c"]}},
                      [[], ["b", "a"], ["c", "a", "b"]], [["a", "a"], ["d"]], zod3))
case("zod3 set sized", *one({"type": "array", "uniqueItems": True, "minItems": 2, "maxItems": 2,
                             "items": {"enum": [1, 2, "x", None]}},
                            [[1, 2], ["x", 1], [None, 2]], [[1], [1, 2, "x"], [2, 2]], zod3))
case("zod3 intersection closed", {"allOf": [
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    {"type": "object", "properties": {"b": {"type": "number"}}, "required": ["b"]}],
    "unevaluatedProperties": False},
     ['{"a":"x","b":1}'], ['{"a":"x","b":1,"c":1}', '{"a":"x"}'])
case("zod3 pattern flags", *one({"type": "string", "pattern": "^[Aa][Bb]?$"}, ["A", "aB"], ["b"],
                                zod3))
case("zod3 two checks", *one({"type": "string", "allOf": [{"pattern": "^[a-z]+"},
                                                          {"pattern": "[0-9]+$"}]},
                             ["a1", "abc-9"], ["a", "1a"], zod3))
case("zod3 record key", *one({"type": "object", "additionalProperties": {"type": "boolean"},
                              "propertyNames": {"minLength": 2}}, [{"ab": True}], [{"a": True}],
                             zod3))
case("zod3 date", *one({"type": "string", "format": "date-time"}, ["2020-01-02T03:04:05Z"],
                       ["2020-01-02", "x"], zod3), by="format")
case("zod3 bigint", *one({"type": "integer", "format": "int64"}, [0, 9223372036854775807],
                         [9223372036854775808, 0.5], zod3), by="format")
case("zod3 not", *one({"not": {}}, [], ["x"], lambda p: {
    "type": "object", "properties": {**p, "b": {"type": "null"}}, "additionalProperties": False}))

# ---- pydantic 2 ----
case("pydantic model", pydantic("Item", {"name": {"type": "string"},
                                         "price": {"type": "number"}}),
     ['{"name":"x","price":1.5}'], ['{"name":"x"}', '{"name":1,"price":1}'])
case("pydantic optional", pydantic("M", {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}],
                                               "default": None}}, []),
     ['{}', '{"a":null}', '{"a":3}'], ['{"a":"x"}'])
case("pydantic decimal", pydantic("M", {"a": {"anyOf": [
    {"type": "number"}, {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}]}}),
     ['{"a":1.25}', '{"a":"1.25"}', '{"a":"-0.5"}'], ['{"a":"-"}', '{"a":"+."}', '{"a":"x"}'])
case("pydantic nested", {"$defs": {"B": {"properties": {"x": {"title": "X", "type": "integer"}},
                                         "required": ["x"], "title": "B", "type": "object"}},
                         "properties": {"b": {"$ref": "#/$defs/B"},
                                        "list": {"items": {"$ref": "#/$defs/B"}, "title": "List",
                                                 "type": "array"}},
                         "required": ["b", "list"], "title": "A", "type": "object"},
     ['{"b":{"x":1},"list":[{"x":2}]}'], ['{"b":{},"list":[]}', '{"b":{"x":1}}'])
case("pydantic ref default", {"$defs": {"C": {"enum": ["r", "g"], "title": "C", "type": "string"}},
                              "properties": {"c": {"$ref": "#/$defs/C", "default": "r",
                                                   "description": "the colour"}},
                              "title": "M", "type": "object"},
     ['{}', '{"c":"g"}'], ['{"c":"b"}'])
case("pydantic allOf ref", {"$defs": {"C": {"enum": ["r", "g"], "type": "string"}},
                            "properties": {"c": {"allOf": [{"$ref": "#/$defs/C"}],
                                                 "default": "r"}}, "type": "object"},
     ['{"c":"g"}'], ['{"c":"b"}'])
case("pydantic constr", pydantic("M", {"a": {"type": "string", "minLength": 3, "maxLength": 8,
                                             "pattern": "^[A-Z][a-z]*$"}}),
     ['{"a":"Abc"}', '{"a":"Abcdefgh"}'], ['{"a":"Ab"}', '{"a":"Abcdefghi"}', '{"a":"abc"}'])
case("pydantic conint", pydantic("M", {"a": {"type": "integer", "exclusiveMinimum": 0,
                                             "maximum": 10, "multipleOf": 2}}),
     ['{"a":2}', '{"a":10}'], ['{"a":0}', '{"a":3}', '{"a":12}'])
case("pydantic confloat", pydantic("M", {"a": {"type": "number", "minimum": 0.5,
                                               "exclusiveMaximum": 99.95}}),
     ['{"a":0.5}', '{"a":99.94}', '{"a":7}'], ['{"a":0.49}', '{"a":99.95}', '{"a":100}'])
case("pydantic set", pydantic("M", {"a": {"type": "array", "items": {"type": "string"},
                                          "uniqueItems": True, "maxItems": 1}}),
     ['{"a":[]}', '{"a":["x"]}'], ['{"a":["x","x"]}'])
case("pydantic tuple", pydantic("M", {"a": {"type": "array", "maxItems": 2, "minItems": 2,
                                            "prefixItems": [{"type": "integer"},
                                                            {"type": "string"}]}}),
     ['{"a":[1,"x"]}'], ['{"a":[1]}', '{"a":["x",1]}'])
case("pydantic dict", pydantic("M", {"a": {"type": "object",
                                           "additionalProperties": {"type": "integer"}}}),
     ['{"a":{}}', '{"a":{"x":1}}'], ['{"a":{"x":"y"}}'])
case("pydantic dict pattern", pydantic("M", {"a": {"type": "object", "patternProperties": {
    "^[a-z]+$": {"type": "integer"}}}}), ['{"a":{}}', '{"a":{"x":1}}'], ['{"a":{"x":"y"}}'])
case("pydantic dict sized", pydantic("M", {"a": {"type": "object", "minProperties": 1,
                                                 "maxProperties": 2,
                                                 "additionalProperties": {"type": "null"}}}),
     ['{"a":{"x":null}}', '{"a":{"x":null,"y":null}}'],
     ['{"a":{}}', '{"a":{"x":null,"y":null,"z":null}}'])
case("pydantic literal", pydantic("M", {"a": {"const": "x", "type": "string"},
                                        "b": {"enum": [1, "two", None]}}),
     ['{"a":"x","b":"two"}', '{"a":"x","b":null}'], ['{"a":"y","b":1}', '{"a":"x","b":2}'])
case("pydantic discriminator", {"$defs": {
    "Cat": {"properties": {"pet": {"const": "cat", "type": "string"},
                           "n": {"type": "integer"}}, "required": ["pet", "n"], "type": "object"},
    "Dog": {"properties": {"pet": {"const": "dog", "type": "string"}}, "required": ["pet"],
            "type": "object"}},
    "discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
                      "propertyName": "pet"},
    "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
     ['{"pet":"cat","n":1}', '{"pet":"dog"}'], ['{"pet":"cat"}', '{"pet":"cow"}'])
case("pydantic recursive", {"$defs": {"Node": {"properties": {
    "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None}},
    "title": "Node", "type": "object"}}, "$ref": "#/$defs/Node"},
     ['{}', '{"next":{"next":null}}'], ['{"next":1}'])
case("pydantic path", pydantic("M", {"a": {"type": "string", "format": "path"}}),
     ['{"a":"/tmp/x y"}'], ['{"a":1}'])
case("pydantic time", pydantic("M", {"a": {"type": "string", "format": "time"}}),
     ['{"a":"12:30:00Z"}'], ['{"a":"25:00:00Z"}'], by="format")
case("pydantic timedelta", pydantic("M", {"a": {"type": "string", "format": "duration"}}),
     ['{"a":"P3DT12H"}', '{"a":"PT5M"}'], ['{"a":"3 days"}', '{"a":"P"}'], by="format")
case("pydantic password json", pydantic("M", {
    "a": {"type": "string", "format": "password", "writeOnly": True},
    "b": {"type": "string", "contentMediaType": "application/json", "contentSchema": {}}}),
     ['{"a":"x","b":"{}"}'], ['{"a":1,"b":"x"}'])
case("pydantic forbid", pydantic("M", {"a": {"type": "integer"}}, additionalProperties=False),
     ['{"a":1}'], ['{"a":1,"b":2}'])
case("pydantic url", pydantic("M", {"a": {"type": "string", "format": "uri", "minLength": 1,
                                          "maxLength": 2083}}),
     ['{"a":"https://a.de/x"}'], ['{"a":""}', '{"a":"x y"}'], by="format")

# ---- TypeBox ----
case("typebox object", {"type": "object", "properties": {
    "x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"]},
     ['{"x":1}', '{"x":1,"y":2}'], ['{"y":1}'])
case("typebox union", {"anyOf": [{"const": "a", "type": "string"}, {"const": 1, "type": "number"},
                                 {"type": "null"}]}, ['"a"', '1', 'null'], ['"b"', '2', 'true'])
case("typebox record", {"type": "object", "patternProperties": {"^(.*)$": {"type": "number"}}},
     ['{}', '{"a":1,"b c":2}'], ['{"a":"1"}'])
case("typebox record integer", {"type": "object", "patternProperties": {
    "^(0|[1-9][0-9]*)$": {"type": "string"}}, "additionalProperties": False},
     ['{"0":"a","12":"b"}'], ['{"01":"a"}', '{"x":"a"}'])
case("typebox tuple", {"type": "array", "items": [{"type": "string"}, {"type": "boolean"}],
                       "additionalItems": False, "minItems": 2, "maxItems": 2},
     ['["a",true]'], ['["a"]', '["a",1]', '["a",true,1]'])
case("typebox recursive", {"$id": "T0", "type": "object", "properties": {
    "id": {"type": "string"}, "nodes": {"type": "array", "items": {"$ref": "T0"}}},
    "required": ["id", "nodes"]},
     ['{"id":"a","nodes":[{"id":"b","nodes":[]}]}'], ['{"id":"a","nodes":[{}]}'])
case("typebox composite", {"type": "object", "allOf": [
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"minLength": 2}}}]},
     ['{"a":"xy"}'], ['{"a":"x"}', '{}'])
case("typebox not", {"type": "string", "not": {"enum": ["root", "admin"]}},
     ['"rooty"', '"x"', '"roo"'], ['"root"', '"admin"'])
case("typebox not pattern", {"allOf": [{"type": "string"}, {"not": {"type": "string",
                                                                    "pattern": "^-"}}]},
     ['"a-"', '""'], ['"-a"', '1'])
case("typebox template literal", {"type": "string", "pattern": "^(v(0|[1-9][0-9]*)\\.(a|b))$"},
     ['"v12.a"', '"v0.b"'], ['"v01.a"', '"v1.c"'])
case("typebox array contains", {"type": "array", "items": {"type": "integer"},
                                "contains": {"type": "integer", "minimum": 10}},
     ['[10]', '[1,2,30,4]'], ['[]', '[1,2]'])
case("typebox date formats", {"type": "object", "properties": {
    "h": {"type": "string", "format": "hostname"},
    "j": {"type": "string", "format": "json-pointer"}}, "required": ["h", "j"]},
     ['{"h":"a.example","j":"/a/b~1c"}'], ['{"h":"-a","j":""}'], by="format")
case("typebox never", {"type": "object", "properties": {"a": {"not": {}}}}, ['{}'], ['{"a":1}'])

# ---- tools ----
case("tool filesystem edit", {"type": "object", "properties": {
    "path": {"type": "string"}, "edits": {"type": "array", "items": {
        "type": "object", "properties": {"oldText": {"type": "string", "description": "must match"},
                                         "newText": {"type": "string"}},
        "required": ["oldText", "newText"], "additionalProperties": False}},
    "dryRun": {"type": "boolean", "default": False}}, "required": ["path", "edits"],
    "additionalProperties": False, "$schema": DRAFT7},
     ['{"path":"a","edits":[{"oldText":"x","newText":"y"}],"dryRun":true}'],
     ['{"path":"a","edits":[{"oldText":"x"}]}'])
case("tool fetch", {"type": "object", "title": "Fetch", "properties": {
    "url": {"type": "string", "format": "uri", "minLength": 1},
    "max_length": {"type": "integer", "default": 5000, "exclusiveMinimum": 0,
                   "exclusiveMaximum": 1000000},
    "raw": {"type": "boolean", "default": False}}, "required": ["url"]},
     ['{"url":"http://a.b/c","max_length":999999}'], ['{"url":"http://a.b","max_length":1000000}',
                                                     '{"max_length":5}'], by="format")
case("tool issues", {"type": "object", "properties": {
    "state": {"enum": ["open", "closed", "all"], "type": "string"},
    "labels": {"type": "array", "items": {"type": "string"}},
    "page": {"type": "number", "minimum": 1}, "perPage": {"type": "number", "maximum": 100,
                                                         "minimum": 1}},
    "required": ["state"]}, ['{"state":"open","labels":["bug"],"page":1,"perPage":100}'],
     ['{"state":"x"}', '{"state":"all","perPage":101}', '{"state":"all","page":0.5}'])
case("tool thinking", {"type": "object", "properties": {
    "thought": {"type": "string"}, "nextThoughtNeeded": {"type": "boolean"},
    "thoughtNumber": {"type": "integer", "minimum": 1}}, "required": ["thought",
                                                                     "nextThoughtNeeded",
                                                                     "thoughtNumber"]},
     ['{"thought":"a","nextThoughtNeeded":true,"thoughtNumber":1}'],
     ['{"thought":"a","nextThoughtNeeded":true,"thoughtNumber":0}'])
case("tool if then", {"type": "object", "properties": {
    "mode": {"enum": ["file", "text"]}, "path": {"type": "string"}, "text": {"type": "string"}},
    "required": ["mode"], "if": {"properties": {"mode": {"const": "file"}}},
    "then": {"required": ["path"]}, "else": {"required": ["text"]}},
     ['{"mode":"file","path":"x"}', '{"mode":"text","text":"x"}'],
     ['{"mode":"file","text":"x"}', '{"mode":"text","path":"x"}'])
case("tool dependent", {"type": "object", "properties": {
    "line": {"type": "integer"}, "file": {"type": "string"}},
    "dependentRequired": {"line": ["file"]}},
     ['{}', '{"file":"x"}', '{"line":1,"file":"x"}'], ['{"line":1}'])
case("tool either", {"type": "object", "properties": {"id": {"type": "integer"},
                                                      "name": {"type": "string"}},
                     "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
                     "additionalProperties": False},
     ['{"id":1}', '{"name":"x"}', '{"id":1,"name":"x"}'], ['{}'])
case("tool no arguments", {"type": "object", "properties": {}, "required": []}, ['{}'], ['[]', '1'])
case("tool nulls", {"type": "object", "properties": {"a": {"type": "integer", "description": None}},
                    "required": ["a"], "additionalProperties": None}, ['{"a":1}'], ['{"a":"x"}'],
     by="null")
case("tool count of keys", {"type": "object", "properties": {
    k: {"type": "integer"} for k in "abcd"}, "minProperties": 2, "maxProperties": 3,
    "additionalProperties": False},
     ['{"a":1,"b":2}', '{"b":1,"c":2,"d":3}'], ['{"a":1}', '{"a":1,"b":2,"c":3,"d":4}', '{}'])


# ---- more of what these and other generators write ----
case('more: pyd condecimal',
     {'anyOf': [{'minimum': 0.0, 'type': 'number'}, {'type': 'string'}]},
     ['1.5'],
     ['-1'])
case('more: pyd recursive',
     {'$defs': {'Node': {'properties': {'name': {'title': 'Name', 'type': 'string'},
                                        'children': {'default': [],
                                                     'items': {'$ref': '#/$defs/Node'},
                                                     'title': 'Children',
                                                     'type': 'array'},
                                        'parent': {'anyOf': [{'$ref': '#/$defs/Node'},
                                                             {'type': 'null'}],
                                                   'default': None}},
                         'required': ['name'],
                         'title': 'Node',
                         'type': 'object'}},
      '$ref': '#/$defs/Node'},
     ['{"name": "a"}',
      '{"name": "a", "children": [{"name": "b", "children": []}], "parent": {"name": "z"}}'],
     ['{}'])
case('more: pyd discriminated',
     {'$defs': {'Cat': {'properties': {'kind': {'const': 'cat',
                                                'title': 'Kind',
                                                'type': 'string'},
                                       'lives': {'default': 9,
                                                 'maximum': 9,
                                                 'minimum': 0,
                                                 'title': 'Lives',
                                                 'type': 'integer'}},
                        'required': ['kind'],
                        'title': 'Cat',
                        'type': 'object'},
                'Dog': {'properties': {'kind': {'const': 'dog',
                                                'title': 'Kind',
                                                'type': 'string'},
                                       'breed': {'anyOf': [{'type': 'string'}, {'type': 'null'}],
                                                 'default': None,
                                                 'title': 'Breed'}},
                        'required': ['kind'],
                        'title': 'Dog',
                        'type': 'object'}},
      'additionalProperties': False,
      'properties': {'pet': {'discriminator': {'mapping': {'cat': '#/$defs/Cat',
                                                           'dog': '#/$defs/Dog'},
                                               'propertyName': 'kind'},
                             'oneOf': [{'$ref': '#/$defs/Cat'}, {'$ref': '#/$defs/Dog'}],
                             'title': 'Pet'}},
      'required': ['pet'],
      'title': 'Pet',
      'type': 'object'},
     ['{"pet": {"kind": "cat", "lives": 3}}', '{"pet": {"kind": "dog", "breed": null}}'],
     ['{"pet": {"kind": "cow"}}', '{"pet": {"kind": "cat"}, "x": 1}'])
case('more: pyd tuple',
     {'maxItems': 3,
      'minItems': 3,
      'prefixItems': [{'type': 'integer'}, {'type': 'string'}, {'type': 'boolean'}],
      'type': 'array'},
     ['[1, "a", true]'],
     ['[1, "a"]', '[1, 2, true]'])
case('more: pyd tuple var',
     {'items': {'type': 'integer'}, 'type': 'array'},
     ['[]', '[1, 2]'],
     ['["a"]'])
case('more: pyd dict pattern',
     {'patternProperties': {'^[a-z]+$': {'type': 'number'}}, 'type': 'object'},
     ['{"abc": 1.5}'],
     [])
case('more: pyd dict literal keys',
     {'additionalProperties': {'type': 'integer'},
      'propertyNames': {'enum': ['a', 'b']},
      'type': 'object'},
     ['{"a": 1}'],
     ['{"c": 1}'])
case('more: pyd namedtuple',
     {'maxItems': 2,
      'minItems': 1,
      'prefixItems': [{'title': 'X', 'type': 'integer'},
                      {'default': 'a', 'title': 'Y', 'type': 'string'}],
      'type': 'array'},
     ['[1]', '[1, "b"]'],
     ['[]', '["a"]'])
case('more: pyd extra typed',
     {'additionalProperties': {'type': 'integer'},
      'properties': {'a': {'title': 'A', 'type': 'integer'}},
      'required': ['a'],
      'title': 'Extra',
      'type': 'object'},
     ['{"a": 1, "b": 2}'],
     ['{"a": 1, "b": "x"}'])
case('more: pyd generic',
     {'$defs': {'Cat': {'properties': {'kind': {'const': 'cat',
                                                'title': 'Kind',
                                                'type': 'string'},
                                       'lives': {'default': 9,
                                                 'maximum': 9,
                                                 'minimum': 0,
                                                 'title': 'Lives',
                                                 'type': 'integer'}},
                        'required': ['kind'],
                        'title': 'Cat',
                        'type': 'object'}},
      'properties': {'items': {'items': {'$ref': '#/$defs/Cat'},
                               'title': 'Items',
                               'type': 'array'},
                     'next': {'anyOf': [{'type': 'string'}, {'type': 'null'}], 'title': 'Next'}},
      'required': ['items', 'next'],
      'title': 'Page[Cat]',
      'type': 'object'},
     ['{"items": [{"kind": "cat"}], "next": null}'],
     ['{"items": [{}], "next": null}'])
case('more: pyd json alias',
     {'$defs': {'J': {'anyOf': [{'additionalProperties': {'$ref': '#/$defs/J'}, 'type': 'object'},
                                {'items': {'$ref': '#/$defs/J'}, 'type': 'array'},
                                {'type': 'string'}, {'type': 'integer'}, {'type': 'number'},
                                {'type': 'boolean'}, {'type': 'null'}]}},
      '$ref': '#/$defs/J'},
     ['{"a": [1, null, {"b": "c"}]}', '[[]]', '"x"'],
     [])
case('more: zod3 map',
     {'type': 'array',
      'maxItems': 125,
      'items': {'type': 'array',
                'items': [{'type': 'string'}, {'type': 'number'}],
                'minItems': 2,
                'maxItems': 2},
      '$schema': DRAFT7},
     ['[["a",1]]', '[]'],
     ['[["a"]]'])
case('more: zod3 ref path',
     {'type': 'object',
      'properties': {'a': {'type': 'object',
                           'properties': {'x': {'type': 'string'}},
                           'required': ['x'],
                           'additionalProperties': False},
                     'b': {'$ref': '#/properties/a'},
                     'c': {'type': 'array', 'items': {'$ref': '#/properties/a/properties/x'}}},
      'required': ['a', 'b', 'c'],
      'additionalProperties': False,
      '$schema': DRAFT7},
     ['{"a":{"x":"1"},"b":{"x":"2"},"c":["q"]}'],
     ['{"a":{"x":"1"},"b":{"x":2},"c":[]}'])
case('more: zod3 endsWith two',
     {'type': 'string', 'allOf': [{'pattern': '^a'}, {'pattern': 'z$'}], '$schema': DRAFT7},
     ['"abcz"', '"az"'],
     ['"ab"'])
case('more: zod3 intersection',
     {'allOf': [{'type': 'object', 'properties': {'a': {'type': 'string'}}, 'required': ['a']},
                {'type': 'object', 'properties': {'b': {'type': 'number'}}, 'required': ['b']}],
      'unevaluatedProperties': False,
      '$schema': DRAFT7},
     ['{"a":"x","b":1}'],
     ['{"a":"x"}'])
case('more: zod4 emoji',
     {'$schema': DRAFT2020,
      'type': 'string',
      'format': 'emoji',
      'pattern': '^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$'},
     ['"😀👍🏽"', '"🇩🇪"'],
     ['"a"'], by='look')
case('more: zod4 record enum',
     {'$schema': DRAFT2020,
      'type': 'object',
      'propertyNames': {'type': 'string', 'enum': ['a', 'b']},
      'additionalProperties': {'type': 'string'},
      'required': ['a', 'b']},
     ['{"a":"x","b":"y"}'],
     ['{"a":"x"}', '{"a":"x","b":"y","c":"z"}'])
case('more: zod4 partialRecord',
     {'$schema': DRAFT2020,
      'type': 'object',
      'propertyNames': {'anyOf': [{'type': 'string', 'const': 'x'},
                                  {'type': 'string', 'pattern': '^y\\d$'}]},
      'additionalProperties': {'type': 'boolean'}},
     ['{"x":true}', '{"y1":false}', '{}'],
     ['{"z":true}'])
case('more: zod4 tuple rest',
     {'$schema': DRAFT2020,
      'type': 'array',
      'prefixItems': [{'type': 'string'}, {'type': 'number'}],
      'items': {'type': 'boolean'}},
     ['["a",1,true]'],
     ['["a",1,2]'])
case('more: zod4 registry ids',
     {'$schema': DRAFT2020,
      '$id': 'User',
      'type': 'object',
      'properties': {'posts': {'type': 'array', 'items': {'$ref': 'Post'}}},
      '$defs': {'Post': {'$id': 'Post',
                         'type': 'object',
                         'properties': {'t': {'type': 'string'}},
                         'required': ['t']}},
      'required': ['posts']},
     ['{"posts":[{"t":"x"}]}'],
     ['{"posts":[{}]}'], by='look')
case('more: zod4 anchor',
     {'$schema': DRAFT2020,
      'type': 'object',
      'properties': {'p': {'$ref': '#node'}},
      '$defs': {'n': {'$anchor': 'node', 'type': 'string'}},
      'required': ['p']},
     ['{"p":"x"}'],
     ['{"p":1}'])
case('more: zod4 hostname',
     {'$schema': DRAFT2020,
      'type': 'string',
      'format': 'hostname',
      'pattern': '^(?=.{1,253}\\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9]'
                 '(?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\\.?$'},
     ['"a.b"'],
     ['"-"'])
case('more: zod4 ipv6',
     {'$schema': DRAFT2020,
      'type': 'string',
      'format': 'ipv6',
      'pattern': '^(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|([0-9a-fA-F]{'
                 '1,4}:){1,6}:[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){1,2}|(['
                 '0-9a-fA-F]{1,4}:){1,4}(:[0-9a-fA-F]{1,4}){1,3}|([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-f'
                 'A-F]{1,4}){1,4}|([0-9a-fA-F]{1,4}:){1,2}(:[0-9a-fA-F]{1,4}){1,5}|[0-9a-fA-F]{1,4'
                 '}:((:[0-9a-fA-F]{1,4}){1,6})|:((:[0-9a-fA-F]{1,4}){1,7}|:))$'},
     ['"2001:db8::1"'],
     ['"x"'])
case('more: zod4 template num',
     {'$schema': DRAFT2020, 'type': 'string', 'pattern': '^-?\\d+(?:\\.\\d+)?px$'},
     ['"-1.5px"'],
     ['"px"'])
case('more: typebox contains',
     {'type': 'array',
      'items': {'type': 'number'},
      'contains': {'type': 'number', 'const': 1},
      'minContains': 1,
      'maxContains': 2},
     ['[1]', '[2,1,3]', '[1,3,1,2]', '[1,1]'],
     ['[]', '[2]', '[1,1,1]'])
case('more: typebox record number keys',
     {'type': 'object',
      'patternProperties': {'^-?(0|[1-9][0-9]*)(\\.[0-9]+)?$': {'type': 'string'}},
      'additionalProperties': False},
     ['{"1":"a"}'],
     ['{"x":"a"}'])
case('more: typebox module',
     {'$defs': {'A': {'type': 'object',
                      'required': ['b'],
                      'properties': {'b': {'$ref': 'B'}},
                      '$id': 'A'},
                'B': {'type': 'string', '$id': 'B'}},
      '$ref': 'A'},
     ['{"b":"x"}'],
     ['{"b":1}'], by='look')
case('more: mcp items empty list',
     {'type': 'object', 'properties': {'a': {'type': 'array', 'items': []}}},
     ['{"a":[1]}'],
     [])
case('more: mcp type upper',
     {'type': 'object', 'properties': {'a': {'type': 'STRING'}}},
     ['{"a":"x"}'],
     [], by='names')
case('more: mcp type float',
     {'type': 'object',
      'properties': {'a': {'type': 'float'},
                     'b': {'type': 'int'},
                     'c': {'type': 'bool'},
                     'd': {'type': 'dict'},
                     'e': {'type': 'list'},
                     'f': {'type': 'str'}}},
     ['{"a":1}'],
     [], by='names')
case('more: mcp dynamicRef',
     {'type': 'object',
      'properties': {'a': {'$dynamicRef': '#n'}},
      'required': ['a'],
      '$defs': {'q': {'$dynamicAnchor': 'n', 'type': 'integer'}}},
     ['{"a":1}'],
     [])
case('more: mcp recursiveRef',
     {'type': 'object',
      'properties': {'a': {'$recursiveRef': '#'}},
      'required': [],
      '$recursiveAnchor': True},
     ['{"a":{}}'],
     [])
case('more: mcp draft4 exclusive',
     {'$schema': DRAFT4,
      'type': 'object',
      'properties': {'a': {'type': 'number', 'minimum': 0, 'exclusiveMinimum': True}}},
     ['{"a":1}'],
     ['{"a":0}'])
case('more: serde enum external',
     {'oneOf': [{'type': 'string', 'enum': ['Unit']},
                {'type': 'object',
                 'properties': {'Tup': {'type': 'array',
                                        'items': [{'type': 'integer', 'format': 'int32'},
                                                  {'type': 'string'}],
                                        'maxItems': 2,
                                        'minItems': 2}},
                 'required': ['Tup'],
                 'additionalProperties': False}],
      '$schema': DRAFT7},
     ['"Unit"', '{"Tup":[1,"a"]}'],
     ['"x"'])
case('more: csharp nullable',
     {'type': ['object', 'null'],
      'properties': {'a': {'type': ['string', 'null']}, 'self': {'$ref': '#'}},
      'required': ['a']},
     ['null', '{"a":null,"self":{"a":"x"}}'],
     ['{}'])
case('more: arktype',
     {'type': 'object',
      'properties': {'a': {'anyOf': [{'const': 'a'},
                                     {'type': 'number', 'minimum': 0, 'not': {'const': 5}}]}},
      'required': ['a']},
     ['{"a":"a"}', '{"a":4}'],
     ['{"a":"b"}', '{"a":5}'])
case('more: not enum numbers',
     {'type': 'integer', 'not': {'enum': [1, 2, 'x']}},
     ['3', '0'],
     ['1', '2'])
case('more: not const any',
     {'not': {'const': 1}},
     ['3', '"x"'],
     ['1'])
case('more: contains max bounds',
     {'type': 'array',
      'items': {'type': 'integer'},
      'contains': {'const': 1},
      'maxContains': 1,
      'minContains': 0,
      'minItems': 2,
      'maxItems': 3},
     ['[1,2]', '[2,3]', '[1,2,3]'],
     ['[1,1]', '[2]', '[1,2,3,4]'])
case('more: lookbehind',
     {'type': 'string', 'pattern': '(?<=a)b'},
     [],
     ['1'], by='look')
case('more: look in repeat',
     {'type': 'string', 'pattern': '^((?!ab)[a-z])*$'},
     ['"xyz"'],
     ['"1"'], by='look')


def validator(schema):
    """The draft by the shape: exclusiveMinimum as a flag, "items" as a list"""
    text = json.dumps(schema)
    if schema.get("$schema") == DRAFT4:
        return jsonschema.Draft4Validator(schema)
    if '"items": [' in text:
        return jsonschema.Draft7Validator(schema)
    return jsonschema.Draft202012Validator(schema)


def main():
    wrong = 0
    for c in CASES:
        if c["by"] in ("null", "names", "look"):
            continue
        v = validator(c["schema"])
        for text in c["yes"] if c["by"] != "nullable" else []:
            if not v.is_valid(json.loads(text)):
                print(f'{c["name"]}: {text} does not fit', file=sys.stderr)
                wrong += 1
        for text in c["no"] if not c["by"] else []:
            if v.is_valid(json.loads(text)):
                print(f'{c["name"]}: {text} fits', file=sys.stderr)
                wrong += 1
    print(f"{len(CASES)} schemas", file=sys.stderr)
    out = [{k: c[k] for k in ("name", "schema", "yes", "no")} for c in CASES]
    print("[" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in out) + "]")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
