"""Signed tokens beside keys: which are accepted, for whom, and that nothing in a token chooses how it is checked."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from noonmark.core.api_key import ALL_SCOPES
from noonmark.core.errors import Unauthenticated
from noonmark.core.instants import SECOND, to_micros
from noonmark.server.tokens import TokenSettings, TokenVerifier, read_keys
from tests.server.live_server import Keyed, new_key, serving

NOW = to_micros(datetime(2026, 3, 1, tzinfo=UTC))
SECRET = "a secret of more than thirty-two bytes"  # noqa: S105 - of this test
RSA = rsa.generate_private_key(65_537, 2_048)
EC = ec.generate_private_key(ec.SECP256R1())
CLAIMS = {
    "sub": "ada",
    "tenant": "acme",
    "scope": "openid read noonmark:run",
    "aud": "noonmark",
    "exp": NOW // SECOND + 60,
}


def pem(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def jwk(key, algorithm, kid):
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "alg": algorithm, "kid": kid, "use": "sig"}


def without(**claims):
    return {name: one for name, one in {**CLAIMS, **claims}.items() if one is not None}


class Clock:
    now = 0

    def __call__(self):
        return self.now


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [jwk(RSA, "RS256", "first"), jwk(EC, "ES256", "second")]}))
    return file


@pytest.fixture
def verifier(file):
    return TokenVerifier(TokenSettings(keys=str(file)), Clock())


def signed(claims=CLAIMS, key=RSA, algorithm="RS256", kid="first", **headers):
    return jwt.encode(claims, pem(key), algorithm=algorithm, headers={"kid": kid, **headers})


def test_a_token_names_the_tenant_the_user_and_the_scopes(verifier):
    for token in (signed(), signed(key=EC, algorithm="ES256", kid="second")):
        caller = verifier.caller(token, now=NOW)
        assert (caller.owner.tenant, caller.owner.user, caller.name) == ("acme", "ada", "ada")
        assert caller.scopes == {"read", "run"}
        assert not caller.is_root
        assert caller.expires == CLAIMS["exp"] * SECOND
    assert verifier.caller(signed(without(scope=["admin"])), now=NOW).scopes == ALL_SCOPES
    assert verifier.caller(signed(without(scope=None)), now=NOW).scopes == frozenset()


def test_claims_are_mapped_by_settings(file):
    settings = TokenSettings(
        keys=str(file), audience="us", issuer="them", tenant_claim="org.id", user_claim="email", scope_claim="roles"
    )
    claims = {"org": {"id": "acme"}, "email": "a@b.c", "roles": ["write", 7], "aud": ["x", "us"], "iss": "them",
              "exp": CLAIMS["exp"]}  # fmt: skip
    caller = TokenVerifier(settings, Clock()).caller(signed(claims), now=NOW)
    assert (caller.owner.tenant, caller.owner.user, caller.scopes) == ("acme", "a@b.c", {"write"})
    with pytest.raises(Unauthenticated, match="another issuer"):
        TokenVerifier(settings, Clock()).caller(signed({**claims, "iss": "others"}), now=NOW)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"aud": "others"}, "another service"),
        ({"aud": None}, "is invalid"),
        ({"exp": NOW // SECOND}, "has expired"),
        ({"exp": None}, "is invalid"),
        ({"exp": "soon"}, "is invalid"),
        ({"exp": True}, "is invalid"),
        ({"nbf": NOW // SECOND + 31}, "not valid yet"),
        ({"nbf": "x"}, "is invalid"),
        ({"tenant": None}, "not the name of a tenant"),
        ({"tenant": "*"}, "not the name of a tenant"),
        ({"tenant": "../x"}, "not the name of a tenant"),
        ({"tenant": ["acme"]}, "not the name of a tenant"),
        ({"sub": None}, "not the name of a user"),
        ({"sub": "a\nb"}, "not the name of a user"),
    ],
)
def test_a_token_of_another_time_or_audience_is_refused(verifier, claims, words):
    token = signed(without(**claims))
    with pytest.raises(Unauthenticated, match=words) as refused:
        verifier.caller(token, now=NOW)
    assert token.rpartition(".")[2] not in str(refused.value)


def test_the_clock_of_the_issuer_may_be_a_little_ahead(verifier):
    assert verifier.caller(signed(without(nbf=NOW // SECOND + 30)), now=NOW)
    verifier.caller(signed(), now=(CLAIMS["exp"] * SECOND) - 1)
    with pytest.raises(Unauthenticated, match="expired"):
        verifier.caller(signed(), now=CLAIMS["exp"] * SECOND)


def forged(algorithm, signature, kid="first"):
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    head = part({"alg": algorithm, "kid": kid, "typ": "JWT"}) + b"." + part(CLAIMS)
    return (head + b"." + base64.urlsafe_b64encode(signature(head)).rstrip(b"=")).decode()


PUBLIC = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
CONFUSED = {
    "none": lambda: forged("none", lambda _: b""),
    "None": lambda: forged("None", lambda _: b""),
    "the public key as a secret": lambda: forged("HS256", lambda head: hmac.new(PUBLIC, head, hashlib.sha256).digest()),
    "another algorithm of the same key": lambda: signed(algorithm="RS512"),
    "another padding of the same key": lambda: signed(algorithm="PS256"),
    "the other key": lambda: signed(key=EC, algorithm="ES256", kid="first"),
    "a key that is not ours": lambda: signed(key=rsa.generate_private_key(65_537, 2_048)),
    "an unknown key": lambda: signed(kid="third"),
    "no key named": lambda: jwt.encode(CLAIMS, pem(RSA), algorithm="RS256"),
    "a header that must be understood": lambda: signed(crit=["exp"]),
    "a signature of another token": lambda: (
        signed(without(sub="eve")).rpartition(".")[0] + "." + signed().rpartition(".")[2]
    ),
    "no signature": lambda: signed().rpartition(".")[0] + ".",
    "not JSON": lambda: "a.b.c",
    "a key of its own": lambda: signed(key=EC, algorithm="ES256", kid="first", jwk=jwk(EC, "ES256", "first")),
}


@pytest.mark.parametrize("name", CONFUSED)
def test_a_token_does_not_choose_how_it_is_checked(verifier, name):
    with pytest.raises(Unauthenticated, match="the token is invalid"):
        verifier.caller(CONFUSED[name](), now=NOW)


def test_a_secret_has_one_algorithm():
    verifier = TokenVerifier(TokenSettings(keys=f"HS256:{SECRET}"), Clock())
    assert verifier.caller(jwt.encode(CLAIMS, SECRET, algorithm="HS256"), now=NOW).owner.user == "ada"
    for token in (
        jwt.encode(CLAIMS, SECRET * 2, algorithm="HS512"),
        jwt.encode(CLAIMS, f"{SECRET}.", algorithm="HS256"),
    ):
        with pytest.raises(Unauthenticated):
            verifier.caller(token, now=NOW)
    assert SECRET not in repr(TokenSettings(keys=f"HS256:{SECRET}"))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"keys": []}, "must have a list"),
        ([], "must have a list"),
        ({"keys": [{"kty": "RSA"}]}, "key 1 of the file must name its algorithm"),
        ({"keys": [{**jwk(RSA, "none", "k")}]}, "must name its algorithm"),
        ({"keys": [{**jwk(RSA, "HS256", "k")}]}, "not of the kind that HS256 needs"),
        ({"keys": [{**jwk(RSA, "RS256", "k"), "use": "enc"}]}, "not for signatures"),
        ({"keys": [{**jwk(RSA, "RS256", "k"), "n": "?"}]}, "cannot be read"),
        ({"keys": [{"kty": "oct", "alg": "HS256", "k": "c2hvcnQ"}]}, "at least 32 bytes"),
        ({"keys": [jwk(RSA, "RS256", "k"), jwk(EC, "ES256", "k")]}, "a kid of its own"),
    ],
)
def test_a_file_of_keys_says_what_is_wrong_with_it(tmp_path, keys, words):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(keys))
    with pytest.raises(ValueError, match=words):
        read_keys(str(file))


@pytest.mark.parametrize(("text", "words"), [("HS256:short", "32 bytes"), ("/no/such/file", "JSON Web Key Set")])
def test_a_setting_that_is_no_key_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        read_keys(text)


def test_keys_are_read_again_when_the_file_changes(file, caplog):
    clock = Clock()
    verifier = TokenVerifier(TokenSettings(keys=str(file)), clock)
    replaced = file.with_name("new.json")
    replaced.write_text(json.dumps({"keys": [jwk(EC, "ES256", "third")]}))
    replaced.replace(file)
    verifier.caller(signed(), now=NOW)
    clock.now = 2 * SECOND
    with pytest.raises(Unauthenticated):
        verifier.caller(signed(), now=NOW)
    token = signed(key=EC, algorithm="ES256", kid="third")
    assert verifier.caller(token, now=NOW)
    file.unlink()
    clock.now = 4 * SECOND
    assert verifier.caller(token, now=NOW)
    assert "the old ones stay" in caplog.text


def test_a_server_accepts_tokens_beside_keys():
    clock = Clock()
    verifier = TokenVerifier(TokenSettings(keys=f"HS256:{SECRET}"), clock)
    with serving(tokens=verifier) as server:
        assert server.client.get("/whoami").status_code == 401
        later = server.service.store.clock() // SECOND + 600
        good, old = (jwt.encode({**CLAIMS, "exp": exp}, SECRET, algorithm="HS256") for exp in (later, later - 700))
        caller = Keyed(server.client, good)
        answer = caller.get("/whoami").json()
        assert (answer["tenant"], answer["user"], answer["all_tenants"]) == ("acme", "ada", False)
        assert caller.get("/schedules").status_code == 200
        assert caller.post("/schedules", json={}).json()["code"] == "missing_scope"
        assert caller.get("/nodes").status_code == 403
        refused = Keyed(server.client, old).get("/whoami")
        assert (refused.status_code, refused.json()["detail"]) == (401, "the token has expired")
        key = new_key(server.service, opens_store=True)
        assert Keyed(server.client, key).get("/whoami").json()["all_tenants"]
        assert caller.get("/whoami").status_code == 200
