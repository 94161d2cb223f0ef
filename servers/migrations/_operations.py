from django.db.migrations.operations import SeparateDatabaseAndState


class CreateModels(SeparateDatabaseAndState):
    """Creates many models at once: `CreateModel` after `CreateModel`, Django renders all models that have to do with the
    new one again, which takes most of the time of a first start."""

    def __init__(self, models):
        super().__init__(state_operations=models)

    def state_forwards(self, app_label, state):
        state.__dict__.pop("apps", None)  # rendered once when it is needed, with all models
        super().state_forwards(app_label, state)

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        for model in self._models(app_label, schema_editor, to_state):
            schema_editor.create_model(model)

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        for model in reversed(self._models(app_label, schema_editor, from_state)):
            schema_editor.delete_model(model)

    def _models(self, app_label, schema_editor, state):
        found = [state.apps.get_model(app_label, operation.name) for operation in self.state_operations]
        return [model for model in found if self.allow_migrate_model(schema_editor.connection.alias, model)]
