"""Names of models: `provider:model`, or a model alone where its name or the session tells its provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.targets.session import Provider

if TYPE_CHECKING:
    from noonmark.core.targets.session import SessionSpec

TEST = "test"
_PROVIDERS = {Provider.ANTHROPIC: "anthropic", Provider.OPENAI: "openai", Provider.GEMINI: "google"}
_FAMILIES = {
    "claude": "anthropic",
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "chatgpt": "openai",
    "gemini": "google",
}
"""How the models of a provider begin."""
_VARIANTS = ("openai-chat", "openai-responses")
"""The same provider by another protocol."""


@frozen
class ModelName:
    """A model of a provider."""

    full: str
    """As it was named."""
    name: str
    provider: str
    is_free: bool = False
    """A model for tests, which costs nothing."""


def model_name(named: str, provider: Provider | None = None) -> ModelName:
    """The provider and the name of a model; ValueError if it has no provider."""
    if named == TEST:
        return ModelName(TEST, TEST, TEST, is_free=True)
    prefix, sign, name = named.partition(":")
    if sign and name:
        return ModelName(named, name, "openai" if prefix in _VARIANTS else prefix)
    provider_name = _PROVIDERS.get(provider) if provider is not None else None
    provider_name = provider_name or next((one for start, one in _FAMILIES.items() if named.startswith(start)), None)
    if provider_name is None:
        raise ValueError(
            f"the model {named!r} has no provider; write it as provider:model, such as openai:gpt-5.2,"
            " anthropic:claude-sonnet-4-6 or test"
        )
    return ModelName(f"{provider_name}:{named}", named, provider_name)


def session_model(spec: SessionSpec, default: str | None) -> ModelName:
    """The model of a session, or the one that the node has for sessions that name none."""
    if spec.model:
        return model_name(spec.model, spec.provider)
    if default is None:
        raise ValueError("no model is named, and this node has none for that: set agent_model, or name a model")
    return model_name(default)
