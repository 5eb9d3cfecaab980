"""The Secret with the address and credentials of an S3 store. Each of its keys is an environment variable that steps
read.

Every key may be missing: a store may be a mounted folder, and a pod may have a cloud's own identity.
"""

from qinglan.store.s3_connection import ACCESS_KEY_VARIABLE, ENDPOINT_VARIABLE, SECRET_KEY_VARIABLE

STORE_SECRET = "qinglan-store"
STORE_ENDPOINT = ENDPOINT_VARIABLE
"""The store's address for the steps that push to it or pull from it themselves."""

FETCH_ENDPOINT = "AWS_ENDPOINT_URL_S3"
"""The store's address for KFP's launcher, which fetches a step's imported inputs; without this key the launcher asks
AWS."""

TOKEN, REGION = "AWS_SESSION_TOKEN", "AWS_REGION"
S3_KEYS = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, TOKEN, REGION)
