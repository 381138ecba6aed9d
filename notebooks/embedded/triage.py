"""What to do about a mail of a customer; lesson 8 runs it from the shell."""

from openprogram import Runtime, agentic_function, llm


def rules(content):
    """Stands in for a model: it knows one word."""
    return "negative" if "broken" in content[-1]["text"].lower() else "positive"


model = Runtime(call=rules)


@agentic_function
def mood(mail: str, runtime: Runtime) -> str:
    """Is the customer's mail positive or negative? Answer with one word."""
    return llm(mail)


@agentic_function
def triage(mail: str) -> str:
    """Say what to do about a mail."""
    return "refund" if mood(mail, runtime=model) == "negative" else "thank"
