"""What S3 answers, as sentences with a cure: which failures pass by themselves, which never do."""

from typing import Any

from botocore import exceptions as boto

from pipeline.config.storage import StorageConfig
from pipeline.errors import ConflictError, StorageError

FAILURES = (boto.BotoCoreError, boto.ClientError)

PASSING = {
    "ConditionalRequestConflict", "InternalError", "OperationAborted", "RequestLimitExceeded",
    "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException",
    "TooManyRequests",
}  # fmt: skip
MISSING = {"404", "NoSuchKey", "NotFound", "NoSuchUpload"}
UNANSWERED = (boto.ConnectionError, boto.HTTPClientError)
KEYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or storage.profile, for this store"
CURES = {
    "NoSuchBucket": "create the bucket, or correct storage.root",
    "InvalidBucketName": "correct the bucket in storage.root",
    "InvalidAccessKeyId": KEYS,
    "SignatureDoesNotMatch": KEYS,
    "ExpiredToken": "renew the session token",
    "InvalidToken": "renew the session token",
    "AccessDenied": "these credentials lack the right; allow it, or use others (AWS_PROFILE)",
    "403": "these credentials are wrong or lack the right to read the bucket",
    "PermanentRedirect": "set storage.region to the bucket's region",
    "301": "set storage.region to the bucket's region",
    "AuthorizationHeaderMalformed": "set storage.region to the bucket's region",
    "RequestTimeTooSkewed": "set this machine's clock",
    "QuotaExceeded": "free space in the store (`gristmill prune`) or raise its quota",
    "InsufficientStorage": "free space in the store (`gristmill prune`) and run again",
}
FIRST_CONTACT_ATTEMPTS = 3  # a mistyped address should not take a minute to say so

_answered: set[str | None] = set()


def code(error: Exception) -> str:
    """The store's own code, or the class of a failure that brought none."""
    if isinstance(error, boto.ClientError):
        return str(error.response.get("Error", {}).get("Code") or _status(error))
    return type(error).__name__


def _status(error: boto.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def transient(error: Exception) -> bool:
    """Whether the same request may work a little later."""
    if isinstance(error, boto.ClientError):
        return code(error) in PASSING or _status(error) == 429 or 500 <= _status(error) != 501
    return isinstance(error, (*UNANSWERED, boto.IncompleteReadError, boto.ResponseStreamingError))


def answered(config: StorageConfig) -> None:
    """Remember that this endpoint has answered in this process."""
    _answered.add(config.endpoint_url)


def patience(error: Exception, config: StorageConfig, attempts: int) -> int:
    """How many attempts an error deserves: few for an address that has never answered."""
    strange = isinstance(error, boto.ConnectionError) and config.endpoint_url not in _answered
    return min(attempts, FIRST_CONTACT_ATTEMPTS) if strange else attempts


def refused(error: Exception) -> bool:
    """Whether the condition of a conditional write did not hold."""
    return code(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict")


def moved(where: str) -> ConflictError:
    """The pointer does not hold what was expected."""
    message = f"{where} was moved by another process"
    return ConflictError(message, hint="run again; finished parts are kept")


def explain(error: Exception, what: str, where: str, config: StorageConfig) -> Exception:
    """The error to raise in place of boto's: FileNotFoundError, ConflictError or StorageError."""
    name = code(error)
    if name in MISSING:
        return (
            ConflictError(f"{where} is gone", hint="run again")
            if what == "move"
            else (FileNotFoundError(2, "no such object", where))
        )
    if refused(error):
        return moved(where)
    tries = next((note for note in getattr(error, "__notes__", ())), "")
    message = f"cannot {what} {where}: {_sentence(error, name, config)} ({tries})"
    return StorageError(message, hint=_cure(error, name, config))


def _sentence(error: Exception, name: str, config: StorageConfig) -> str:
    if isinstance(error, boto.ClientError):
        said: Any = error.response.get("Error", {}).get("Message") or "no message"
        return f"the store answered {_status(error)} {name}: {said}"
    if isinstance(error, boto.ConnectionError):
        return f"no answer from {config.endpoint_url or 'the S3 endpoint'} ({name})"
    return f"{name}: {error}"


def _cure(error: Exception, name: str, config: StorageConfig) -> str:
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return f"{KEYS}; for a public bucket storage.anonymous: true"
    if isinstance(error, boto.ProfileNotFound):
        return "correct storage.profile or AWS_PROFILE"
    if isinstance(error, boto.ConnectionError):
        return "check storage.endpoint_url, the network, and that the server runs"
    if transient(error):
        return "the store is overloaded or down; run again later, finished parts are kept"
    return CURES.get(name, "check the store, its address and your rights")
