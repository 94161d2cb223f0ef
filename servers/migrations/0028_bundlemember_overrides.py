from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('servers', '0027_oauth_and_service_accounts'),
    ]

    operations = [
        migrations.AddField(
            model_name='bundlemember',
            name='overrides',
            field=models.JSONField(default=dict),
        ),
    ]
