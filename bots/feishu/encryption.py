"""Encryption and signatures of Feishu's webhooks. Pure. Imported only in mode webhook, because the import takes 0.1 s.

Encryption: AES-256-CBC with the SHA-256 hash of the encrypt key as the key, the IV in front, PKCS#7 padding, base64, as
    `{"encrypt": ...}`. Signature: SHA-256 of time, nonce, encrypt key and raw body (open.feishu.cn, "Encryption and
    verification").
"""

import base64
import binascii
import hashlib

from Crypto.Cipher import AES
from Crypto.Util.Padding import unpad

_BLOCK = AES.block_size


class DecryptionError(ValueError):
    """The content cannot be decrypted with our key."""


def sign_request(key: str, timestamp: str, nonce: str, body: bytes) -> str:
    """Return Feishu's signature of a request, hexadecimal."""
    return hashlib.sha256(f"{timestamp}{nonce}{key}".encode("utf-8", "replace") + body).hexdigest()


def decrypt(key: str, sealed: str) -> bytes:
    """Return the decrypted content. Raises DecryptionError."""
    try:
        data = base64.b64decode(sealed, validate=True)
        cipher = AES.new(hashlib.sha256(key.encode()).digest(), AES.MODE_CBC, iv=data[:_BLOCK])
        plain: bytes = unpad(cipher.decrypt(data[_BLOCK:]), _BLOCK)
    except (ValueError, binascii.Error) as error:
        raise DecryptionError("it cannot be decrypted") from error
    return plain
