"""Every right against every kind of account, decided by uid alone."""

import itertools
import os
import pwd

import pytest

from agents.cpa.permissions import Denied, Rights, uid_of, user_name
from agents.wire.errors import AgentError

ACCOUNTS = [entry for entry in pwd.getpwall() if entry.pw_uid != 0][:4]
OWNER, ADMIN, BATCH, OTHER = (entry.pw_uid for entry in ACCOUNTS)
NOBODY_KNOWN = 3_999_999_999 & 0x7FFFFFFF

RIGHTS = Rights(OWNER, frozenset({user_name(ADMIN)}), frozenset({user_name(BATCH)}))

MAY = {
    "need_daemon": {0, OWNER},
    "need_admin": {0, OWNER, ADMIN},
    "need_batch": {0, OWNER, ADMIN, BATCH},
}


@pytest.mark.parametrize(("need", "uid"), itertools.product(MAY, [0, OWNER, ADMIN, BATCH, OTHER, NOBODY_KNOWN]))
def test_who_may_what(need: str, uid: int) -> None:
    ask = getattr(RIGHTS, need)
    if uid in MAY[need]:
        ask(uid, "set_mode")
    else:
        with pytest.raises(Denied, match="set_mode") as caught:
            ask(uid, "set_mode")
        assert caught.value.code == "denied" and user_name(uid) in caught.value.message


def test_an_account_without_a_name_is_not_mistaken_for_one_called_like_its_number() -> None:
    rights = Rights(OWNER, frozenset({"root"}), frozenset())
    assert user_name(NOBODY_KNOWN) == str(NOBODY_KNOWN) and not rights.is_admin(NOBODY_KNOWN)


def test_names_and_numbers_of_accounts() -> None:
    me = pwd.getpwuid(os.getuid())
    assert uid_of(me.pw_name) == me.pw_uid
    with pytest.raises(AgentError, match="no account is called 'no-such-user'"):
        uid_of("no-such-user")
    with pytest.raises(AgentError):
        uid_of("nul\0byte")
