"""Import artifacts that no stage made, under readable names.

`dsl.importer` names every importer `importer`, and its artifact `artifact`. A display name does not help: KFP 2.17's
launcher records an importer by its display name, and the driver of a step that takes the artifact looks for the
task's name. So the task itself is named here, and the artifact by its output and its metadata.
"""

from typing import Any

from kfp import dsl
from kfp.dsl import importer_component, placeholders, structures
from kfp.dsl.importer_node import OUTPUT_KEY, URI_KEY
from kfp.dsl.types.type_utils import create_bundled_artifact_type

from pipelines.lines.cluster_resources import Cluster


def import_artifact(name: str, uri: Any, cluster: Cluster, kind: Any = dsl.Dataset, about: str = "") -> Any:
    """Import an artifact that no stage made. Unless `cluster.immutable_inputs` is set, each run imports it anew,
    since its bytes may have changed."""
    schema = create_bundled_artifact_type(kind.schema_title, kind.schema_version)
    # kfp.local, which runs a graph on this machine, knows an importer's output only by KFP's own name for it.
    output = name if cluster.machines else OUTPUT_KEY
    spec = structures.ComponentSpec(
        name=name,
        implementation=structures.Implementation(
            importer=structures.ImporterSpec(
                artifact_uri=placeholders.InputValuePlaceholder(URI_KEY)._to_string(),
                schema_title=schema,
                schema_version=kind.schema_version,
                reimport=not cluster.immutable_inputs,
                metadata={"display_name": name},
            )
        ),
        inputs={URI_KEY: structures.InputSpec(type="String", description=f"Its address. {about}".strip())},
        outputs={output: structures.OutputSpec(type=schema, description=about or None)},
    )
    return importer_component.ImporterComponent(spec)(uri=uri).output
