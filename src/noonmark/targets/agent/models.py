"""Models: those of pydantic-ai, by name, with a key from the tenant's secrets or from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers import infer_provider, infer_provider_class

from noonmark.core.frozen import frozen
from noonmark.core.json_values import shown
from noonmark.core.redaction import MASK, redact
from noonmark.core.urls import parse_url
from noonmark.targets.agent.model_names import TEST, ModelName, session_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.providers import Provider
    from pydantic_ai.settings import ModelSettings

    from noonmark.core.targets.session import SessionSpec
    from noonmark.targets.secrets import SecretResolver

OPENAI_URL = "https://api.openai.com"
MAX_OPEN = 32
"""Models that stay open."""
NO_KEY = "no-key"
"""Stands for a key where only the address of a provider is asked for."""
PARAMETERS = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "parallel_tool_calls",
        "presence_penalty",
        "seed",
        "stop_sequences",
        "temperature",
        "thinking",
        "top_k",
        "top_p",
    }
)
"""What a session may set with `provider_params`. Nothing that leads elsewhere, or that a price does not cover."""


@frozen
class LoadedModel:
    """A model that can be called."""

    name: ModelName
    model: Model[Any]

    def masked(self, text: str) -> str:
        """The text without the key of the model: a provider may repeat it."""
        key = getattr(getattr(self.model.provider, "client", None), "api_key", None)
        return redact(text.replace(key, MASK) if isinstance(key, str) and key else text)


class ModelLoader:
    """Makes models and reuses them, with their connections."""

    def __init__(self, own: Mapping[str, Any], default: str | None, secrets: SecretResolver | None) -> None:
        """With the models that the program made itself, and the name of the one for sessions that name none."""
        self._own, self._default, self._secrets = own, default, secrets
        self._loaded: dict[tuple[str, str | None], Model[Any]] = {}
        self._open: list[Model[Any]] = []

    async def open(self, loaded: LoadedModel) -> None:
        """Keep the connections of a model open between turns; of many models, those that were used last."""
        if any(one is loaded.model for one in self._open):
            return
        self._open.append(await loaded.model.__aenter__())
        while len(self._open) > MAX_OPEN:
            await self._forget(self._open[0])

    async def close(self) -> None:
        """Close all connections."""
        while self._open:
            await self._forget(self._open[0])

    async def _forget(self, model: Model[Any]) -> None:
        self._open = [one for one in self._open if one is not model]
        self._loaded = {key: one for key, one in self._loaded.items() if one is not model}
        await model.__aexit__(None, None, None)

    def load(self, tenant: str, spec: SessionSpec) -> LoadedModel:
        """The model of a session; ValueError says why there is none. It blocks on the store."""
        if (named := spec.model or self._default or "") in self._own:
            model = self._own[named]
            is_free = isinstance(model, FunctionModel | TestModel)
            return LoadedModel(ModelName(named, model.model_name, model.system, is_free=is_free), model)
        name = session_model(spec, self._default)
        key = self._key(tenant, name)
        if (name.full, key) not in self._loaded:
            self._loaded[name.full, key] = _make(name, key)
        return LoadedModel(name, self._loaded[name.full, key])

    def _key(self, tenant: str, name: ModelName) -> str | None:
        """The tenant's own key for a provider, if it has a secret with the name of the variable."""
        if self._secrets is None or name.provider == TEST:
            return None
        variable = key_variable(name.provider)
        return self._secrets.provider_key(tenant, variable, lambda: parse_url(_base_url(name)))


def key_variable(provider: str) -> str:
    """The environment variable, and the secret, with the key of a provider."""
    return f"{provider.upper().replace('-', '_')}_API_KEY"


def _prefix(name: ModelName) -> str:
    """The provider by the name that says how it is called.

    A server at another address that calls itself compatible with OpenAI speaks the protocol of chat completions.
    """
    prefix = name.full.partition(":")[0]
    base = os.environ.get("OPENAI_BASE_URL", "")
    return "openai-chat" if prefix == "openai" and base and not base.startswith(OPENAI_URL) else prefix


def provider_problem(name: ModelName) -> str | None:
    """Why no node can call a model; None if one can, although perhaps not this one."""
    prefix = name.full.partition(":")[0]
    try:
        infer_provider_class(prefix)
    except ImportError:
        return None  # other nodes may have its package
    except ValueError:
        return (
            f"the provider {shown(prefix)} of the model {shown(name.full)} is unknown; allowed are those of"
            " pydantic-ai, such as openai, anthropic and google"
        )
    return None


def _base_url(name: ModelName) -> str:
    provider: Provider[Any] = infer_provider_class(_prefix(name))(api_key=NO_KEY)  # type: ignore[call-arg]
    return str(provider.base_url)


def _make(name: ModelName, key: str | None) -> Model[Any]:
    if name.provider == TEST:
        return TestModel()
    prefix = _prefix(name)

    def provider(of: str) -> Provider[Any]:
        return infer_provider(of) if key is None else infer_provider_class(of)(api_key=key)  # type: ignore[call-arg]

    try:
        infer_provider_class(prefix)
        return infer_model(f"{prefix}:{name.name}", provider_factory=provider)
    except (UserError, ImportError, ValueError) as error:
        variable = key_variable(name.provider)
        if variable in str(error) and variable not in os.environ:
            error = ValueError(f"set {variable} in the environment of this node, or store a secret of that name")
        raise ValueError(f"the model {name.full} cannot be used: {error}") from None


def model_settings(spec: SessionSpec, max_tokens: int, seconds: float | None) -> ModelSettings:
    """How a model is called; ValueError if the session sets what it may not."""
    if unknown := sorted(spec.provider_params.keys() - PARAMETERS):
        raise ValueError(f"provider_params.{unknown[0]} cannot be set; allowed are {', '.join(sorted(PARAMETERS))}")
    settings: ModelSettings = {**spec.provider_params, "max_tokens": max_tokens, "max_retries": 0}  # type: ignore[typeddict-item]
    if seconds is not None:
        settings["timeout"] = seconds
    return settings
