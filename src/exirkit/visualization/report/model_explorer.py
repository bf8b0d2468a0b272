"""The stages of a report as graphs for Model Explorer, and measured numbers as its node data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_REFERENCE = re.compile(r"%([^\s,\])}:]+)")


def model_explorer_graphs(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a graph for each stage that changes anything, in the JSON form that Model Explorer opens.

    A node has the same id in the graphs of all stages of a method, so that two graphs can be navigated in step. Modules
    are namespaces, subgraphs of control flow are further ones.

    Args:
        document: What `report_document` made.
    """
    graphs = [
        {"id": graph_id, "nodes": _nodes(document, rows)}
        for method in document["methods"]
        for graph_id, rows in _stages(method)
    ]
    return {"label": document["title"], "graphs": graphs}


def model_explorer_node_data(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return measured numbers as node data of the graph of the last stage.

    Args:
        document: What `report_document` made.
        key: `times` or `gaps`.
    """
    found: dict[str, Any] = {}
    for method in document["methods"]:
        if not method[key]:
            continue
        graph_id, rows = list(_stages(method))[-1]
        entities = {
            document["texts"][document["rows"]["name"][row]]: document["rows"]["entity"][row]
            for row in reversed(rows)
            if not document["rows"]["graph"][row]
        }
        steps = (method["memory"] or {"steps": []})["steps"]
        results: dict[str, dict[str, float]] = {}
        for instruction, node, value, _ in method[key]:
            name = node if instruction is None else steps[instruction][1] if 0 <= instruction < len(steps) else None
            if name in entities:
                entry = results.setdefault(str(entities[name]), {"value": 0.0})
                entry["value"] += value
        gradient = [{"stop": 0, "bgColor": "white"}, {"stop": 1, "bgColor": "orange"}]
        found[graph_id] = {"results": results, "gradient": gradient}
    return found


def _stages(method: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and the rows of every stage that changes anything."""
    rows: list[int] = []
    for at, stage in enumerate(method["stages"]):
        rows = _patched(rows, stage["delta"])
        if at == 0 or any(stage["counts"]):
            yield f"{method['name']} {at:02} {stage['name']}", rows


def _patched(before: Sequence[int], delta: Sequence[int]) -> list[int]:
    """Return the rows of a stage: see `report_document` for the form of differences."""
    rows: list[int] = []
    at = 0
    while at < len(delta):
        if delta[at] == 0:
            rows += before[delta[at + 1] : delta[at + 1] + delta[at + 2]]
            at += 3
        else:
            rows += delta[at + 2 : at + 2 + delta[at + 1]]
            at += 2 + delta[at + 1]
    return rows


def _nodes(document: Mapping[str, Any], rows: Sequence[int]) -> list[dict[str, Any]]:
    texts, columns = document["texts"], document["rows"]

    def text(column: str, row: int) -> str:
        return str(texts[columns[column][row]])

    named = {(columns["graph"][row], text("name", row)): str(columns["entity"][row]) for row in rows}
    nodes = []
    for row in rows:
        if text("verb", row) == "graph":
            continue
        inputs = (named.get((columns["graph"][row], name)) for name in _REFERENCE.findall(text("args", row)))
        edges = [
            {"sourceNodeId": source, "sourceNodeOutputId": "0", "targetNodeInputId": str(at)}
            for at, source in enumerate(one for one in inputs if one is not None)
        ]
        attributes = {
            "name": text("name", row),
            "arguments": text("args", row),
            "source": _place(document, columns["source"][row]),
            "memory": text("memory", row),
        }
        nodes.append(
            {
                "id": str(columns["entity"][row]),
                "label": text("verb", row),
                "namespace": _namespace(document, columns["module"][row], text("graph", row)),
                "attrs": [{"key": key, "value": value} for key, value in attributes.items() if value],
                "incomingEdges": edges,
                "outputsMetadata": [{"id": "0", "attrs": [{"key": "type", "value": text("type", row)}]}],
            }
        )
    return nodes


def _namespace(document: Mapping[str, Any], module: int, graph: str) -> str:
    path = document["modules"][module][0] if module >= 0 else ""
    return "/".join(part.replace("/", "_") for part in (*path.split("."), *graph.split(".")) if part)


def _place(document: Mapping[str, Any], place: int) -> str:
    if place < 0:
        return ""
    file, line, function, code = document["places"][place]
    return f"{file}:{line} in {function}:  {code}"
