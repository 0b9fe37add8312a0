"""A correction of MuJoCo Warp's contacts between planes and capsules, so that they are MuJoCo's.

MuJoCo lays the first tangent of such a contact along the capsule, projected onto the plane. MuJoCo Warp 4.0 (like
MJX, see google-deepmind/mujoco#2774) gives that up where the capsule is within 30° of the plane's normal, and takes
the world's y axis. With pyramidal friction cones the tangents matter: the pyramid is turned, and so is the force
that keeps a foot from sliding. Planar tasks do not notice, because there the two choices span the same pyramid. Ant
does: its feet stand steeply, and 36 % of the steps of a random policy came out wrong (17 % of those of a standing
one), by up to 4 in a velocity. Corrected, what remains is how MuJoCo itself answers to rounding its start to float32.

The correction does nothing to contacts that are right already, so it may stay when MuJoCo Warp is mended.
"""
# A kernel is written in Warp's language, which only looks like Python.
# mypy: disable-error-code="valid-type, call-overload, arg-type"

from typing import Any

import mujoco_warp as mjw
import warp as wp

PLANE, CAPSULE = wp.constant(int(mjw.GeomType.PLANE)), wp.constant(int(mjw.GeomType.CAPSULE))
PARALLEL = wp.constant(1e-6)
"""A projection shorter than this is rounding: the capsule stands upright."""


@wp.kernel
def _align(
    geom_type: wp.array(dtype=int),
    geom_xmat: wp.array2d(dtype=wp.mat33),
    contact_geom: wp.array(dtype=wp.vec2i),
    contact_world: wp.array(dtype=int),
    contacts: wp.array(dtype=int),
    frame: wp.array(dtype=wp.mat33),
):
    i = wp.tid()
    if i >= contacts[0]:
        return
    geoms = contact_geom[i]
    if geoms[0] < 0 or geom_type[geoms[0]] != PLANE or geom_type[geoms[1]] != CAPSULE:
        return
    rotation = geom_xmat[contact_world[i], geoms[1]]
    axis = wp.vec3(rotation[0, 2], rotation[1, 2], rotation[2, 2])
    normal = wp.vec3(frame[i][0, 0], frame[i][0, 1], frame[i][0, 2])
    first = axis - wp.dot(normal, axis) * normal
    if wp.length(first) < PARALLEL:
        first = wp.vec3(1.0, 0.0, 0.0)  # so does MuJoCo, when it normalises a vector of length 0
    first = wp.normalize(first)
    frame[i] = wp.matrix_from_rows(normal, first, wp.cross(normal, first))


def align_capsules(model: Any, data: Any) -> None:
    """Corrects the contacts just found; for `Model.callback.contactfilter`, which runs after collision detection."""
    contact = data.contact
    wp.launch(
        _align,
        dim=data.naconmax,
        inputs=[model.geom_type, data.geom_xmat, contact.geom, contact.worldid, data.nacon],
        outputs=[contact.frame],
    )
