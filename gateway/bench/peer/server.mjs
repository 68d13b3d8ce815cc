// Runs the ecosystem's reference server: node server.mjs PORT [DATA_DIR]. Without a folder it keeps everything in
// memory. Compression is off since no server of the comparison compresses.
import { DurableStreamTestServer } from '@durable-streams/server'

const [port, dataDir] = process.argv.slice(2)
const server = new DurableStreamTestServer({ port: Number(port), host: '127.0.0.1', compression: false, dataDir })
await server.start()
console.log('ready')
process.once('SIGTERM', async () => {
  await server.stop()
  process.exit(0)
})
