"""Rows without the ORM's compiler, which costs five to ten times as much as the database on the path of every call.

The statements are built once from the models, so a new column is never forgotten; values go through the fields' own
conversions, both on SQLite and PostgreSQL.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import FORMAT_QMARK_REGEX
from django.db.models import Model
from django.db.models.base import ModelState
from django.db.models.expressions import Col

M = TypeVar("M", bound=Model)
Converter = Callable[[Any, Any, Any], Any]
#: fields whose values every driver stores unchanged if they have exactly one of the types below
_AS_THEY_ARE = (models.CharField, models.TextField, models.IntegerField, models.BooleanField, models.FloatField)
_STORED_TYPES = frozenset({str, int, bool, float, type(None)})


def database() -> BaseDatabaseWrapper:
    """This thread's connection. `django.db.connection` looks it up again on each of a statement's many accesses."""
    return connections[DEFAULT_DB_ALIAS]


# --- execution ---------------------------------------------------------------------------------------------------------
#: number of distinct statements: constant texts, each with a few different numbers of placeholders
_STATEMENTS = 512


def fetch(sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """All rows of one statement."""
    connection = database()
    if _takes_plain(connection):
        with connection.wrap_database_errors:
            return list(connection.connection.execute(_with_question_marks(sql), values).fetchall())
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def fetch_one(sql: str, values: Sequence[Any] = ()) -> Any:
    """The first row, or None."""
    return next(iter(fetch(sql, values)), None)


def execute(sql: str, values: Sequence[Any] = ()) -> int:
    """Execute a statement without a result. Returns how many rows it changed."""
    connection = database()
    if _takes_plain(connection):
        with connection.wrap_database_errors:
            return int(connection.connection.execute(_with_question_marks(sql), values).rowcount)
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


def execute_many(sql: str, many: Sequence[Sequence[Any]]) -> None:
    """Execute the statement once for each of these sequences of values."""
    connection = database()
    if _takes_plain(connection):
        with connection.wrap_database_errors:
            connection.connection.executemany(_with_question_marks(sql), many)
        return
    with connection.cursor() as cursor:
        cursor.executemany(sql, many)


def _takes_plain(connection: BaseDatabaseWrapper) -> bool:
    """Whether to use SQLite's driver directly: Django's cursor, which converts the placeholders every time, takes
    longer than SQLite itself. Not while statements are recorded or wrapped."""
    if connection.vendor != "sqlite" or connection.queries_logged or connection.execute_wrappers:
        return False
    if connection.connection is None:
        connection.ensure_connection()
    connection.validate_no_broken_transaction()
    return True


@lru_cache(_STATEMENTS)
def _with_question_marks(sql: str) -> str:
    return FORMAT_QMARK_REGEX.sub("?", sql).replace("%%", "%")


# --- values and columns ------------------------------------------------------------------------------------------------
def tables(*of: type[Model]) -> dict[str, str]:
    """The table names by model name, to be filled into a statement."""
    return {model.__name__: model._meta.db_table for model in of}


def prepared(field: Any, value: Any, connection: BaseDatabaseWrapper) -> Any:
    """The value as the database driver needs it for this field's column."""
    if type(value) in _STORED_TYPES and isinstance(field, _AS_THEY_ARE):
        return value
    return field.get_db_prep_save(value, connection)


def param(model: type[Model], name: str, value: Any) -> Any:
    return prepared(model._meta.get_field(name), value, database())


def _as_it_is(field: Any) -> bool:
    """For a foreign key, the referenced field decides."""
    while field.remote_field is not None:
        field = field.target_field
    return isinstance(field, _AS_THEY_ARE)


def _is_saved_as_set(field: Any) -> bool:
    if isinstance(field, models.DateField):  # a DateTimeField is one
        return not (field.auto_now or field.auto_now_add)
    return type(field).pre_save is models.Field.pre_save


class Fields:
    """Columns of one table whose values are written together; facts about each are looked up once, not per row."""

    def __init__(self, fields: Iterable[Any]) -> None:
        self._fields = [(field, field.attname, _as_it_is(field), _is_saved_as_set(field)) for field in fields]
        self.names = [name for _, name, _, _ in self._fields]

    def of_row(self, row: Model) -> list[Any]:
        """Like `prepared`, for what each field saves of `row`."""
        connection, values = database(), []
        for field, name, as_it_is, plain in self._fields:
            value = getattr(row, name) if plain else field.pre_save(row, True)
            if value is not None and not (as_it_is and type(value) in _STORED_TYPES):
                value = field.get_db_prep_save(value, connection)
            values.append(value)
        return values

    def of_columns(self, columns: Mapping[str, Any]) -> list[Any]:
        """The same for values by attribute name."""
        return self.of_values([columns[name] for name in self.names])

    def of_values(self, values: list[Any]) -> list[Any]:
        """The same for values in the order of `names`; changes the list in place."""
        connection = database()
        for place, (field, _, as_it_is, _) in enumerate(self._fields):
            value = values[place]
            if value is not None and not (as_it_is and type(value) in _STORED_TYPES):
                values[place] = field.get_db_prep_save(value, connection)
        return values


class Insert(Generic[M]):
    """Writes whole rows; the database assigns their keys."""

    def __init__(self, model: type[M]) -> None:
        key = model._meta.pk
        fields = [field for field in model._meta.concrete_fields if field is not key]
        self._fields = Fields(fields)
        names = ", ".join(f'"{field.column}"' for field in fields)
        marks = ", ".join(["%s"] * len(fields))
        self._copy = f"COPY {model._meta.db_table} ({names}) FROM STDIN"
        self._many = f"INSERT INTO {model._meta.db_table} ({names}) VALUES ({marks})"  # noqa: S608  # names of our own model
        self._sql = f'{self._many} RETURNING "{key.column}"'

    def values(self, row: M) -> list[Any]:
        """What will be written, in the order of `place`; can be computed before the transaction begins."""
        return self._fields.of_row(row)

    @property
    def names(self) -> list[str]:
        return self._fields.names

    def place(self, name: str) -> int:
        return self.names.index(name)

    def values_of(self, given: list[Any]) -> list[Any]:
        """Like `values`, for a row without an object: its values in the order of `names`, changed in place."""
        return self._fields.of_values(given)

    def many(self, rows: Sequence[list[Any]]) -> None:
        """Write rows whose values are from `values` or `values_of`. PostgreSQL copies them, which takes a third of the
        CPU time of one statement per row."""
        if not rows:
            return
        connection = database()
        if connection.vendor != "postgresql":
            execute_many(self._many, rows)
            return
        with connection.wrap_database_errors, connection.cursor() as cursor, cursor.copy(self._copy) as copy:
            for values in rows:
                copy.write_row(values)

    def write(self, row: M, values: list[Any]) -> M:
        self.write_returning(row, values, "")
        return row

    def write_returning(self, row: M, values: list[Any], terms: str) -> Sequence[Any]:
        """Like `write`, and returns the values of `terms`: further SQL terms for RETURNING, each after a comma."""
        row.pk, *found = fetch(self._sql + terms, values)[0]
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS
        return found

    def __call__(self, row: M) -> M:
        return self.write(row, self.values(row))


class Columns(Generic[M]):
    """The columns of one table in a SELECT, and how to rebuild the row from them. With `names`, the rest is
    deferred."""

    def __init__(self, model: type[M], alias: str, names: Sequence[str] = ()) -> None:
        self._model = model
        fields = [field for field in model._meta.concrete_fields if not names or field.attname in names]
        self._fields = fields
        self._names = [field.attname for field in fields]
        self._key = fields.index(model._meta.pk)
        self.sql = ", ".join(f'{alias}."{field.column}"' for field in fields)
        self.count = len(fields)
        self._converters = cache(self._of_vendor)

    def read(self, values: Sequence[Any]) -> M | None:
        """None if an outer join found nothing."""
        if values[self._key] is None:
            return None
        row, connection = list(values[: self.count]), database()
        for place, converters, column in self._converters(connection.vendor):
            for convert in converters:
                row[place] = convert(row[place], column, connection)
        # As a row is unpickled: what `from_db` does for each field costs more than everything above.
        found = self._model.__new__(self._model)
        found.__dict__.update(zip(self._names, row, strict=True))
        found._state = ModelState()
        found._state.adding, found._state.db = False, DEFAULT_DB_ALIAS
        return found

    def _of_vendor(self, vendor: str) -> list[tuple[int, list[Converter], Col]]:
        found, connection = [], database()
        for place, field in enumerate(self._fields):
            column = Col("", field)
            converters = connection.ops.get_db_converters(column) + field.get_db_converters(connection)
            if converters:
                found.append((place, converters, column))
        return found
