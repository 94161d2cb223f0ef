import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """The table keeps its name: it is a part of what seals the values in it."""

    dependencies = [("servers", "0032_preferences_and_browser_reports")]

    operations = [
        migrations.AlterModelTable(name="signin", table="servers_signin"),
        migrations.RenameModel(old_name="SignIn", new_name="ServerAuthorization"),
        migrations.AlterField(
            model_name="serverauthorization",
            name="identity",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="authorizations", to="servers.identity"
            ),
        ),
    ]
