"""Signed proof of the inputs of a model, and the check that nothing has changed since.

Each stage of a run signs one statement: an in-toto Statement v1 with SLSA provenance v1 in a DSSE envelope. It names
every input and every output by digest. An input of one step is an output of an earlier one, so the statements form a
chain from a released model back to the spreadsheet, the knowledge base and every paid answer.

Signatures are made with EC keys on P-256 (keys.py, trust.py). A key has one of three roles:

    builder      signs the inputs and outputs of a stage (record.py)
    releaser     signs releases, their models, entries in a name's history, and overrides (register, deploy_gate.py)
    rollout      signs the outcome of a rollout (release_notes.py)

The trust policy, trust.yaml, says which key may sign for which tenants and times. It is public; the auditor and the
deploy gate use their own copy. A run's records, a store and file names are not trusted.

Files of a release (release_folder.py). A store keeps a release under the digest of its folder.

    model/                        the evaluated model, byte for byte
    model.sig                     OpenSSF model signature over model/ (model_signature.py)
    provenance.dsse.json          the release's own statement
    mlbom.cdx.json                CycloneDX bill of materials (bom.py)
    evaluation.json report.html   the figures of the verdict
    lineage/                      the statements of all earlier stages, and the small files that they name

Checks: `check_release` compares a release's own files with its statement (release_check.py). `walk`
follows the chain back and compares bytes and times (walk.py). `audit` does both (audit.py); `may_deploy` also
requires every stage of the model line, and a gate that promoted the model (deploy_gate.py). `verify_model` is a
shorter check for a server that loads a model (model_verification.py). A step refuses inputs that differ from their
statements (earlier_steps.py).

    from pathlib import Path
    from qinglan.lineage.auditing.audit import audit
    from qinglan.lineage.auditing.deploy_gate import may_deploy
    from qinglan.lineage.signing.trust import load_trust

    policy = load_trust(Path("trust.yaml"))
    result = audit("fivedoctors/rewriter", policy, store="runs/store")
    print(result.verdict)                               # intact, incomplete or altered
    for finding in result.findings:
        print(finding)                                  # model/model.safetensors: altered: its digest is ...
    print(may_deploy(Path("release"), policy, "fivedoctors/rewriter").reasons)

A released format never changes: releases that older versions signed must still verify (tests/qinglan/lineage/golden).
docs/audit.md describes the commands and every state for an auditor.
"""
