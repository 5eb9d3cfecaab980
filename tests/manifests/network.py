"""Evaluates rendered NetworkPolicies between two pods, since simulated nodes enforce none."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Policy = dict[str, Any]
Labels = Mapping[str, str]


class Place(NamedTuple):
    """A pod with its namespace; or an address outside, without either."""

    labels: Labels = {}
    namespace: str = ""
    namespace_labels: Labels = {}
    address: str = "10.0.0.9"


def may_speak(policies: Sequence[Policy], item: Place, other: Place, port: int, protocol: str = "TCP") -> bool:
    """Both ends must allow it; a pod that no policy of that direction selects allows everything."""
    return _allows(policies, "Egress", item, other, port, protocol) and _allows(
        policies, "Ingress", other, item, port, protocol
    )


def _allows(policies: Sequence[Policy], direction: str, place: Place, other: Place, port: int, protocol: str) -> bool:
    selected = [
        policy["spec"]
        for policy in policies
        if place.namespace
        and policy["metadata"]["namespace"] == place.namespace
        and direction in _directions(policy["spec"])
        and selects(policy["spec"].get("podSelector") or {}, place.labels)
    ]
    side, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    rules = [rule for spec in selected for rule in spec.get(side) or ()]
    return not selected or any(
        _peer(rule.get(peers), place, other) and _port(rule.get("ports"), port, protocol) for rule in rules
    )


def _directions(spec: Policy) -> Sequence[str]:
    types: Sequence[str] = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
    return types


def _peer(peers: Sequence[Policy] | None, place: Place, other: Place) -> bool:
    """No peers means everybody."""
    return not peers or any(_matches(peer, place, other) for peer in peers)


def _matches(peer: Policy, place: Place, other: Place) -> bool:
    if block := peer.get("ipBlock"):
        address = ipaddress.ip_address(other.address)
        return address in ipaddress.ip_network(block["cidr"]) and not any(
            address in ipaddress.ip_network(hole) for hole in block.get("except") or ()
        )
    if not other.namespace:
        return False
    spaces = peer.get("namespaceSelector")
    in_namespace = other.namespace == place.namespace if spaces is None else selects(spaces, other.namespace_labels)
    return in_namespace and selects(peer.get("podSelector") or {}, other.labels)


def _port(ports: Sequence[Policy] | None, port: int, protocol: str) -> bool:
    return not ports or any(
        item.get("protocol", "TCP") == protocol and item.get("port", port) == port for item in ports
    )


def selects(selector: Policy, labels: Labels) -> bool:
    """An empty selector selects everything."""
    expected = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in expected.items()) and all(
        _expression(item, labels) for item in selector.get("matchExpressions") or ()
    )


def _expression(item: Policy, labels: Labels) -> bool:
    key, operator, values = item["key"], item["operator"], item.get("values") or ()
    if operator in ("Exists", "DoesNotExist"):
        return bool((key in labels) == (operator == "Exists"))
    if operator in ("In", "NotIn"):
        return bool((labels.get(key) in values) == (operator == "In"))
    raise ValueError(f"{operator}: no operator of a label selector.")
