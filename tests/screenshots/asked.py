"""Seeds server requests for the screenshots of the inbox. Runs in the product's shell, so that its rows are right."""

SEED = """
import uuid
from datetime import timedelta
from django.utils import timezone
from sessions.models import Call, Question, Worker
from tests.sessions.inbox.rows import a_question, answered

call = Call.objects.get(uid=uuid.UUID(%(call)r))
kept = {
    "call": call, "owner_name": "ada", "expires_at": timezone.now() + timedelta(minutes=80),
    "worker_uid": Worker.objects.latest("heartbeat_at").uid, "epoch": 1,
}
refund = {
    "message": "Refund order ord_41F9 of Bea Long?\\nShe paid 129.00 EUR.",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "title": "Reason", "description": "What the customer will read",
                       "enum": ["late", "broken"], "enumNames": ["It came late", "It is broken"]},
            "amount": {"type": "number", "title": "Amount", "description": "EUR", "default": 129, "maximum": 129},
            "email": {"type": "string", "title": "Copy to", "format": "email"},
            "notify": {"type": "boolean", "title": "Tell the customer", "default": True},
            "tags": {"type": "array", "title": "Tags", "default": ["vip"],
                     "items": {"type": "string", "enum": ["vip", "first order", "repeat"]}},
        },
        "required": ["reason", "amount"],
    },
}
password = {
    "message": "Please sign in again.",
    "requestedSchema": {"type": "object", "properties": {"password": {"type": "string", "title": "Password"}}},
}
address = {
    "message": "Connect your calendar to go on.",
    "url": "https://\\u0430pple.com:8443/oauth/authorize?client_id=42&scope=calendar.readonly&state=8d9fe0c1a2b345",
}
trap = {"message": "Open the report.", "url": "https://good.example@evil.example/report"}
model = {
    "systemPrompt": "You are a careful accountant. Answer with one number.", "maxTokens": 200, "temperature": 0.2,
    "modelPreferences": {"hints": [{"name": "small"}], "costPriority": 0.3},
    "messages": [
        {"role": "user", "content": {"type": "text", "text": "What is the VAT of 129.00 EUR at 19 %%?"}},
        {"role": "assistant", "content": {"type": "text", "text": "Gross or net?"}},
        {"role": "user", "content": {"type": "text", "text": "Gross."}},
    ],
    "tools": [{"name": "calculator", "description": "Adds and multiplies."}],
}
asked = {
    "form": a_question(refund, **kept),
    "secret": a_question(password, **kept | {"owner_name": ""}),
    "visit": a_question(address, "url", **kept),
    "trap": a_question(trap, "url", **kept),
    "model": a_question(model, "sampling", **kept),
    "over": answered(a_question(refund, **kept, delivered_at=timezone.now()), {"reason": "late", "amount": 129}, "bob"),
}
answered(a_question(refund, **kept), None, "bob", "declined")
answered(a_question(refund, **kept, detail="Not answered in time. The server was notified."), None, "", "expired")
print("ASKED", *(f"{name}={question.uid}" for name, question in asked.items()))
"""


def seeded(output: str) -> dict[str, str]:
    """Parse name -> uid from the output of the seed."""
    (line,) = [line for line in output.splitlines() if line.startswith("ASKED ")]
    return dict(word.split("=", 1) for word in line.split()[1:])
