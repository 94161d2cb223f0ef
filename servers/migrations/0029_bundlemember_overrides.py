from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('servers', '0028_agent_policies'),
    ]

    operations = [
        migrations.AddField(
            model_name='bundlemember',
            name='overrides',
            field=models.JSONField(default=dict),
        ),
    ]
