"""The port of a rendezvous, and the variables that ranks get."""

import socket

import pytest

from ompbind.cli.rendezvous import add_rendezvous, choose_ports, find_replaced_variables
from ompbind.commands.environment import RunSpec, make_local_identities
from ompbind.commands.rank_command import make_command
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine


def environment(spec):
    plan = make_plan(make_machine(Shape(cores=2)), Request(ranks=2))
    envs = [make_command(plan, identity, spec).env for identity in make_local_identities(plan)]
    names = ("MASTER_ADDR", "MASTER_PORT", "VLLM_DIST_IDENT", "TORCHELASTIC_USE_AGENT_STORE")
    return [[env.get(name) for name in names] for env in envs]


def make_run_spec(base=None, **fields):
    return RunSpec(argv=("x",), run_id="r", base=base or {}, **fields)


@pytest.mark.parametrize("keep", [False, True])
def test_ranks_get_equal_variables_and_assignments_of_the_user_have_precedence(keep):
    inherited = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    spec = make_run_spec(inherited, keep_env=keep)
    first, second = environment(add_rendezvous(spec, 61000))
    assert (first, first[:2], first[3]) == (second, ["127.0.0.1", "61000"], None)
    added_variables = (("MASTER_PORT", "500{rank}"), ("TORCHELASTIC_USE_AGENT_STORE", "1"))
    first, second = environment(add_rendezvous(spec.replace(added_variables=added_variables), 61000))
    assert (first[:2], second[:2]) == (["127.0.0.1", "5000"], ["127.0.0.1", "5001"])
    assert first[2:] == second[2:] == [first[2], "1"]


@pytest.mark.parametrize(("base", "added_variables", "names"), [
    ({}, (), []),
    ({"MASTER_PORT": "1", "MASTER_ADDR": "h", "HOME": "/"}, (), ["MASTER_ADDR", "MASTER_PORT"]),
    ({"MASTER_ADDR": "127.0.0.1"}, (), []), ({"MASTER_PORT": "1"}, (("MASTER_PORT", "2"),), []),
    ({"VLLM_DIST_IDENT": "x"}, (("MASTER_PORT", "2"),), ["VLLM_DIST_IDENT"]),
    ({"TORCHELASTIC_USE_AGENT_STORE": "True"}, (), ["TORCHELASTIC_USE_AGENT_STORE"]),
    ({"MASTER_PORT": "1", "OMPBIND_RANK": "0"}, (), []),
])  # fmt: skip
def test_inherited_variables_that_are_replaced(base, added_variables, names):
    spec = make_run_spec(base, added_variables=added_variables)
    found = find_replaced_variables(spec, add_rendezvous(spec, 61000))
    assert found == tuple((name, base[name]) for name in names)


def test_ports_are_different_and_free():
    ports = choose_ports(20)
    assert len(set(ports)) == 20
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        for port in ports if family == socket.AF_INET or socket.has_dualstack_ipv6() else ():
            with socket.socket(family) as server:
                server.bind((address, port))
