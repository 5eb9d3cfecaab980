"""Objects of the API server as what the rollout reads of an InferenceService."""

from serving.rollout.cluster import knative, standard
from serving.rollout.cluster.reading import Objects, asked_of, editor_of, form_of, rest_of
from serving.rollout.ports import Served


def served(objects: Objects, standard_canary: bool = False) -> Served:
    """A pure function of what was read; the form decides which objects tell."""
    service, form = objects.service, form_of(objects.service)
    read = knative if form == "Serverless" else standard
    meta = service["metadata"]
    return Served(
        resource_version=str(meta["resourceVersion"]),
        generation=int(meta["generation"]),
        settled=read.settled(objects),
        asked=asked_of(service),
        rest=rest_of(service),
        newest=read.newest(objects),
        rolled_out=read.rolled_out(objects),
        traffic=read.traffic(objects),
        form=form,
        unsupported=_unsupported(objects, standard_canary),
        editor=editor_of(service),
        uid=str(meta["uid"]),
    )


def _unsupported(objects: Objects, standard_canary: bool) -> str:
    spec = objects.service["spec"]
    if not asked_of(objects.service).uri:
        return "it serves by another field than spec.predictor.model.storageUri: no release can be told from it"
    if spec.get("transformer"):
        return "a separate transformer and a canary do not mix in KServe: put it into the predictor's pods"
    if len(spec.get("canary") or ()) > 1:
        return "it has more than one canary already: end them first"
    if form_of(objects.service) == "Standard" and not standard_canary:
        return standard.UNSPLIT
    return ""
