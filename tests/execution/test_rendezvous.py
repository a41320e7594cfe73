"""Ports for a rendezvous, and the variables that ranks get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.execution.rendezvous import Rendezvous, add_rendezvous, find_replaced_variables, make_port_pools
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import RunSpec, make_command, make_local_identities
from ompbind.planning.request import Request
from tests.long import examples
from tests.machines import Shape, make_machine

RENDEZVOUS = Rendezvous(port=61000, ident="abc")

PORTS = st.integers(1, 65535)


@examples(0.2)
@given(st.tuples(PORTS, PORTS).map(sorted), st.lists(st.tuples(PORTS, PORTS).map(sorted), max_size=4), PORTS)
def test_pools_contain_no_other_ports(outgoing, reserved, first):
    text = ",".join(f"{low}-{high}" if low < high else f"{low}" for low, high in reserved)
    ports = {port for pool in make_port_pools("{}\t{}".format(*outgoing), text, first) for port in pool}
    others = [range(low, high + 1) for low, high in [outgoing, *reserved]] + [range(max(first, 1024))]
    assert ports == set(range(65536)) - {port for ports in others for port in ports}


def environment(spec):
    plan = make_plan(make_machine(Shape(cores=2)), Request(ranks=2))
    envs = [make_command(plan, identity, spec).env for identity in make_local_identities(plan)]
    names = ("MASTER_ADDR", "MASTER_PORT", "VLLM_DIST_IDENT", "TORCHELASTIC_USE_AGENT_STORE")
    return [[env.get(name) for name in names] for env in envs]


def make_run_spec(base=None, **fields):
    return RunSpec(argv=("x",), run_id="r", base=base or {}, **fields)


def test_all_ranks_get_equal_variables():
    inherited = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for keep in (False, True):
        variables = environment(add_rendezvous(make_run_spec(inherited, keep_env=keep), RENDEZVOUS))
        assert variables == [["127.0.0.1", "61000", "abc", None]] * 2


def test_assignments_of_the_user_have_precedence():
    added_variables = (("MASTER_PORT", "500{rank}"), ("TORCHELASTIC_USE_AGENT_STORE", "1"))
    variables = environment(add_rendezvous(make_run_spec(added_variables=added_variables), RENDEZVOUS))
    assert variables == [["127.0.0.1", "5000", "abc", "1"], ["127.0.0.1", "5001", "abc", "1"]]


@pytest.mark.parametrize(
    ("base", "added_variables", "names"),
    [
        ({}, (), []),
        ({"MASTER_PORT": "1", "MASTER_ADDR": "h", "HOME": "/"}, (), ["MASTER_ADDR", "MASTER_PORT"]),
        ({"MASTER_ADDR": "127.0.0.1"}, (), []),
        ({"MASTER_PORT": "1"}, (("MASTER_PORT", "2"),), []),
        ({"VLLM_DIST_IDENT": "x"}, (("MASTER_PORT", "2"),), ["VLLM_DIST_IDENT"]),
        ({"TORCHELASTIC_USE_AGENT_STORE": "True"}, (), ["TORCHELASTIC_USE_AGENT_STORE"]),
        ({"MASTER_PORT": "1", "OMPBIND_RANK": "0"}, (), []),
    ],
)
def test_inherited_variables_that_are_replaced(base, added_variables, names):
    spec = make_run_spec(base, added_variables=added_variables)
    assert find_replaced_variables(spec, add_rendezvous(spec, RENDEZVOUS)) == tuple(
        (name, base[name]) for name in names
    )
