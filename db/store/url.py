"""The URL of the system database. Viewers import this, so it is light.

``sqlite:///absolute/path/mesh.db`` or ``mysql://user:password@host:3306/redmesh`` (``?unix_socket=/path`` too).
"""

from __future__ import annotations

from db.errors import BadUrl

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from typing import Any

#: The suffix of a database's name for the schema that shows viewers the whole machine.
WHOLE = "__view"
#: MySQL's error for a wrong password, an unknown account, or one that has to use TLS.
_ACCESS_DENIED = 1045
HINT = "give sqlite:///absolute/path/mesh.db or mysql://user:password@host:3306/redmesh"


def sqlite_path(url: str) -> str | None:
    """The file of an SQLite URL; None for another kind of URL. Raises BadUrl if the path is not absolute."""
    if not url.startswith("sqlite:"):
        return None
    if not url.startswith("sqlite:///") or url == "sqlite:///":
        raise BadUrl(f"not a database file: {url}", HINT)
    return url[len("sqlite://") :]


def sqlite_uri(path: str, mode: str) -> str:
    """A file as an SQLite URI. ``mode`` is ro, or rw for writers; neither creates a missing file."""
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file://{quoted}?mode={mode}"


def mysql_options(url: str) -> dict[str, Any]:
    """The parts of a MySQL URL, and ``galera`` if it allows a cluster. Raises BadUrl."""
    from urllib.parse import parse_qs, unquote, urlsplit  # slow to import, and only a site needs it

    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError as error:
        raise BadUrl(f"not a database URL: {error}", HINT) from None
    name = unquote(parts.path.lstrip("/"))
    if parts.scheme not in ("mysql", "mariadb") or not name or "/" in name:
        raise BadUrl(f"not a database URL: {without_password(url)}", HINT)
    options: dict[str, Any] = {"host": parts.hostname or "localhost", "port": port, "database": name}
    if parts.username:
        options["user"] = unquote(parts.username)
    if parts.password:
        options["password"] = unquote(parts.password)
        try:
            options["password"].encode("latin-1")
        except UnicodeEncodeError:
            told = f"the driver cannot send the password in the database URL {without_password(url)}"
            raise BadUrl(
                told, "is it the … of an example? mesh db init wrote whole URLs into cpa.url and view.url"
            ) from None
    query = parse_qs(parts.query)
    unknown = sorted(set(query) - {"unix_socket", "ssl_ca", "galera"})
    if unknown:
        raise BadUrl(f"unknown option in the database URL: {unknown[0]}", "known: unix_socket, ssl_ca, galera")
    options.update({key: values[-1] for key, values in query.items()})
    return options


def driver_options(url: str) -> dict[str, Any]:
    """Keyword arguments of ``pymysql.connect``. Raises BadUrl."""
    options = mysql_options(url)
    options.pop("galera", None)
    if "ssl_ca" in options:
        options["ssl"] = {"ca": options.pop("ssl_ca")}
    elif "unix_socket" in options:
        # For TLS the driver would load all CA certificates of this machine at each connection: 20 ms of a showmesh.
        options["ssl_disabled"] = True
    return options


def connect_mysql(**options: Any) -> Any:
    """``pymysql.connect``. If the server refuses an account without TLS, it is asked once more, with TLS if it has it:
    the account may be one of REQUIRE SSL, which holds on a Unix socket too."""
    import pymysql

    try:
        return pymysql.connect(**options)
    except pymysql.err.OperationalError as error:
        if error.args[0] != _ACCESS_DENIED or not options.pop("ssl_disabled", False):
            raise
    return pymysql.connect(**options)


def without_password(url: str) -> str:
    """The URL without its password, for display and logs."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, account = head.partition("://")
    if not at or ":" not in account:
        return url
    return f"{scheme}{slashes}{account.partition(':')[0]}:***@{tail}"


def in_database(url: str, name: str) -> str:
    """The URL of another database of the same MySQL server and account."""
    from urllib.parse import quote

    head, _, tail = url.partition("://")
    place, _, rest = tail.partition("/")
    _, question, query = rest.partition("?")
    return f"{head}://{place}/{quote(name, safe='')}{question}{query}"
