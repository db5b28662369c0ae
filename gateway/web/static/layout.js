// A layered layout for small graphs: layers by longest path, order by barycentres, long edges through waypoints.
// Pure: names and edges in, coordinates out.

const SWEEPS = 8;

// names: [name], edges: [[from, to]] (acyclic) → { layers: [[id]], chains: [[id, ...]] }; one chain per edge.
// An id is a name, or "edge/number" for a waypoint of an edge that crosses layers ("/" is in no operator's name).
function layered(names, edges) {
  const depth = new Map(names.map((name) => [name, 0]));
  for (let round = 0; round < names.length; round += 1) {
    for (const [from, to] of edges) depth.set(to, Math.min(names.length, Math.max(depth.get(to), depth.get(from) + 1)));
  }
  const layers = Array.from({ length: Math.max(0, ...depth.values()) + 1 }, () => []);
  for (const name of names) layers[depth.get(name)].push(name);
  const chains = edges.map(([from, to], index) => {
    const chain = [from];
    for (let at = depth.get(from) + 1; at < depth.get(to); at += 1) {
      const id = `${index}/${at}`;
      layers[at].push(id);
      chain.push(id);
    }
    return [...chain, to];
  });
  return { layers: layers.filter((layer) => layer.length), chains };
}

function order(layers, chains) {
  const before = new Map();
  const after = new Map();
  const add = (map, key, value) => map.set(key, [...(map.get(key) ?? []), value]);
  for (const chain of chains) {
    for (let i = 1; i < chain.length; i += 1) { add(before, chain[i], chain[i - 1]); add(after, chain[i - 1], chain[i]); }
  }
  const place = new Map();
  const index = (layer) => layer.forEach((id, at) => place.set(id, layer.length === 1 ? 0.5 : at / (layer.length - 1)));
  layers.forEach(index);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const layer of forward ? layers : [...layers].reverse()) {
      const near = forward ? before : after;
      const weight = (id) => {
        const others = near.get(id);
        return others ? others.reduce((sum, other) => sum + place.get(other), 0) / others.length : place.get(id);
      };
      const weights = new Map(layer.map((id) => [id, weight(id)]));
      layer.sort((a, b) => weights.get(a) - weights.get(b));
      index(layer);
    }
  }
}

// Coordinates of boxes of `size` = { width, height, alongGap, acrossGap }; `down` lays layers top to bottom.
// Returns { width, height, boxes: Map(name → {x, y}), paths: [d] } with x, y of the upper left corner.
export function layout(names, edges, size, down) {
  const { layers, chains } = layered(names, edges);
  order(layers, chains);
  const [along, across] = down ? [size.height, size.width] : [size.width, size.height];
  const isWaypoint = (id) => id.includes("/");
  const breadth = (id) => (isWaypoint(id) ? across / 4 : across);
  const extent = (layer) => layer.reduce((sum, id) => sum + breadth(id), 0) + size.acrossGap * (layer.length - 1);
  const widest = Math.max(0, ...layers.map(extent));
  const spots = new Map();
  layers.forEach((layer, at) => {
    let b = (widest - extent(layer)) / 2;
    for (const id of layer) {
      spots.set(id, { a: at * (along + size.alongGap), b, middle: b + breadth(id) / 2 });
      b += breadth(id) + size.acrossGap;
    }
  });
  const point = (a, b) => (down ? `${round(b)},${round(a)}` : `${round(a)},${round(b)}`);
  const paths = chains.map((chain) => {
    const stops = chain.map((id) => spots.get(id));
    let d = `M${point(stops[0].a + along, stops[0].middle)}`;
    for (let i = 1; i < stops.length; i += 1) {
      const last = i === stops.length - 1;
      const [from, to] = [stops[i - 1].a + along, stops[i].a - (last ? ARROW : 0)];
      const half = (from + to) / 2;
      d += `C${point(half, stops[i - 1].middle)} ${point(half, stops[i].middle)} ${point(to, stops[i].middle)}`;
      if (!last) d += `L${point(to + along, stops[i].middle)}`;
    }
    return d;
  });
  const length = layers.length * along + (layers.length - 1) * size.alongGap;
  const boxes = new Map(names.map((name) => {
    const { a, b } = spots.get(name);
    return [name, down ? { x: b, y: a } : { x: a, y: b }];
  }));
  return { width: down ? widest : length, height: down ? length : widest, boxes, paths };
}

const ARROW = 7;
const round = (value) => Math.round(value * 10) / 10;
