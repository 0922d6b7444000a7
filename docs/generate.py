"""Writes the pages that repeat what the code says. Run by `make docs`; a test compares them."""

from __future__ import annotations

from pathlib import Path

from docs.generating import calls, classes, commands, facts, http, pictures, rpc, rules

REFERENCE = Path(__file__).parent / "reference"
PAGES = {
    "cli.md": commands.cli_page,
    calls.COMPATIBILITY: calls.compatibility_page,
    "client.md": classes.client_page,
    "http-api.md": http.http_page,
    "jsonrpc.md": rpc.jsonrpc_page,
    "events.md": facts.events_page,
    "settings.md": rules.settings_page,
    "errors.md": rules.errors_page,
    "reasons.md": rules.reasons_page,
    "lifecycles.md": rules.lifecycle_page,
    "embedded.md": classes.embedded_page,
    "../images/mcp-agent.svg": pictures.agent_picture,
    "../images/mcp-proposal.svg": pictures.proposal_picture,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), "utf-8")
        print(f"wrote docs/reference/{name}")
