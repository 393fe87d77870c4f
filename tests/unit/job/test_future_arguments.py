"""Futures among the arguments of a call: where they are found, what the call gets, and when it fails."""

import functools
import pickle
from concurrent.futures import Future
from typing import Any

import pytest

from redmesh.executor import _Call
from redmesh.future_arguments import Arguments, futures_in, with_results


def done(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def test_futures_are_found_in_containers_and_replaced_by_their_results() -> None:
    one, two = done(1), done([2])
    arguments = ((one, 5, [two, (one, {"x": two})]), {"key": {one}})
    assert set(futures_in(arguments)) == {one, two} and len(futures_in(arguments)) == 2
    assert with_results(arguments) == ((1, 5, [[2], (1, {"x": [2]})]), {"key": {1}})
    plain = [1, 2]
    assert futures_in(plain) == [] and with_results(plain) is plain


def test_a_call_has_its_arguments_when_the_last_future_has_ended() -> None:
    one: Future[Any] = Future()
    two: Future[Any] = Future()
    got: list[object] = []
    Arguments((one, [two]), {}, [one, two]).when_known(lambda *told: got.append(told), got.append)
    one.set_result(1)
    assert not got
    two.set_result(2)
    assert got == [((1, [2]), {})]


def test_a_call_is_lost_once_with_the_first_future_that_fails() -> None:
    one: Future[Any] = Future()
    two: Future[Any] = Future()
    lost: list[object] = []
    Arguments((one, two), {}, [one, two]).when_known(lambda *told: lost.append(told), lost.append)
    two.set_exception(LookupError(7))
    one.cancel()
    assert lost == [two]


def test_a_long_chain_that_fails_needs_no_deep_stack() -> None:
    first: Future[Any] = Future()
    chain = [first]
    for _ in range(20_000):
        after: Future[Any] = Future()
        Arguments((chain[-1],), {}, [chain[-1]]).when_known(
            lambda *_: None, lambda lost, after=after: after.set_exception(lost.exception())  # type: ignore[misc]
        )  # fmt: skip
        chain.append(after)
    first.set_exception(LookupError(7))
    assert isinstance(chain[-1].exception(0), LookupError)


def test_containers_that_contain_themselves_or_stand_in_many_places() -> None:
    one, cycle, many = done(1), [], []  # type: Future[Any], list[Any], list[Any]
    cycle += [cycle, one]
    for _ in range(100):
        many = [many, many]
    assert futures_in([cycle, many]) == [one]
    made, _ = with_results([cycle, many])
    assert made[0] is made and made[1] == 1


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda one: {one}, TypeError),
        (lambda one: functools.reduce(lambda a, _: [a], range(9999), one), RecursionError),
    ],
)
def test_a_call_fails_whose_results_fit_into_no_argument(make: Any, error: type[Exception]) -> None:
    one: Future[Any] = Future()
    lost: list[Future[Any]] = []
    Arguments((make(one),), {}, [one]).when_known(lambda *_: None, lost.append)
    one.set_result([1])
    assert isinstance(lost[0].exception(0), error)


def test_a_future_in_another_object_is_refused_with_what_it_may_stand_in() -> None:
    with pytest.raises(TypeError, match="values of dictionaries, but not in other objects"):
        pickle.dumps({_Call(None): 1})  # type: ignore[arg-type]
