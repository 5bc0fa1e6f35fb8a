# SPDX-License-Identifier: MIT
"""event_streams.py - reads streams of server-sent events as strict clients do, and puts the answers
of /v1/responses and /v1/messages together from them: each event in its order, each piece in what
is whole at last."""
import json


def events(data):
    """[[name, value] ...]; comments dispatch nothing, each event has one line of each field"""
    out = []
    assert data.endswith(b"\n\n"), data[-80:]
    for block in data.decode("utf-8").split("\n\n")[:-1]:
        lines = [x for x in block.split("\n") if not x.startswith(":")]
        if not lines:
            continue
        fields = [x.split(": ", 1) for x in lines]
        assert [k for k, _ in fields] == ["event", "data"], block
        value = json.loads(fields[1][1])
        assert value["type"] == fields[0][1], block
        out.append(value)
    return out


def response(data):
    """The response of the last event, after all others were held against it"""
    all_events = events(data)
    items, parts, deltas, open_item = [], {}, {}, None
    assert [e["sequence_number"] for e in all_events] == list(range(len(all_events)))
    assert [e["type"] for e in all_events[:2]] == ["response.created", "response.in_progress"]
    for e in all_events[2:-1]:
        kind = e["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert open_item is None and e["output_index"] == len(items), e
            open_item = e["item"]
            continue
        assert open_item is not None and e["output_index"] == len(items), e
        if kind == "output_item.done":
            assert e["item"]["id"] == open_item["id"] and e["item"]["type"] == open_item["type"], e
            for i, part in enumerate(e["item"].get("content") or []):
                assert part["text"] == parts.pop((e["item"]["id"], i)), e
            items.append(e["item"])
            open_item = None
            continue
        assert e["item_id"] == open_item["id"], e
        key = (e["item_id"], e.get("content_index", 0))
        if kind.endswith(".delta"):
            deltas[key] = deltas.get(key, "") + e["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert e["text"] == deltas.pop(key, ""), e
        elif kind == "function_call_arguments.done":
            assert e["arguments"] == deltas.pop(key, ""), e
        elif kind == "content_part.done":
            parts[key] = e["part"]["text"]
        else:
            assert kind == "content_part.added", e
    last = all_events[-1]
    assert last["type"] == "response." + last["response"]["status"], last
    assert last["response"]["output"] == items and not deltas and open_item is None, last
    assert last["response"]["id"] == all_events[0]["response"]["id"]
    return last["response"]


PIECES = {"text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking"),
          "signature_delta": ("thinking", "signature"), "input_json_delta": ("tool_use", "json")}


def message(data):
    """The message, with the usage and reason of message_delta"""
    all_events = [e for e in events(data) if e["type"] != "ping"]
    m, block = all_events[0]["message"], None
    assert all_events[0]["type"] == "message_start" and m["content"] == [], all_events[0]
    assert [e["type"] for e in all_events[-2:]] == ["message_delta", "message_stop"]
    for e in all_events[1:-2]:
        assert e["index"] == len(m["content"]), e
        if e["type"] == "content_block_start":
            assert block is None, e
            block = {**e["content_block"], "json": ""}
        elif e["type"] == "content_block_delta":
            of, key = PIECES[e["delta"]["type"]]
            assert block["type"] == of, e
            block[key] += e["delta"]["partial_json" if key == "json" else key]
        else:
            assert e["type"] == "content_block_stop", e
            written = block.pop("json")
            if block["type"] == "tool_use":
                block["input"] = json.loads(written or "{}")
            assert block["type"] != "thinking" or block["signature"], block
            m["content"].append(block)
            block = None
    assert block is None
    m.update(all_events[-2]["delta"])
    m["usage"].update(all_events[-2]["usage"])
    return m
