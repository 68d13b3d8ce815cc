import { defineConfig } from "vite"

// Names without hashes: the gateway serves each file with an ETag, and what is
// committed stays comparable.
export default defineConfig(({ isSsrBuild }) => ({
  base: "./",
  build: {
    outDir: "../page",
    emptyOutDir: true,
    target: "es2024",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rollupOptions: {
      output: isSsrBuild ? {} : { entryFileNames: "app.js", chunkFileNames: "[name].js", assetFileNames: "[name][extname]" },
    },
  },
  publicDir: isSsrBuild ? false : "public",
  server: { proxy: { "/_electric": "http://localhost:4437" } },
}))
